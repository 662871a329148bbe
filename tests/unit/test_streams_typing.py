"""The types of streams and tables, as type checkers see them: mypy checks the claims.

A comment that tells mypy to ignore an error is a claim as well: mypy complains of one that finds
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from headwater.streams import (
    App,
    Context,
    Processor,
    Record,
    Stream,
    Table,
    TopologyError,
    Windowed,
    f,
    tumbling,
)


@dataclass
class Order:
    order_id: int
    country: str
    total: float


@dataclass
class Country:
    name: str


class Totals(Processor[str, Order, float]):
    def process(self, record: Record[str, Order], ctx: Context[str]) -> Iterator[float]:
        yield record.value.total


def country_of(order: Order) -> str:
    return order.country


def add(total: float, order: Order) -> float:
    return total + order.total


def test_sources_have_the_types_of_their_keys_and_values() -> None:
    app = App("typed")
    assert_type(app.stream("orders", Order), Stream[str, Order])
    assert_type(app.stream("by-number", Order, key=int), Stream[int, Order])
    assert_type(app.table("countries", Country), Table[str, Country])


def test_operators_follow_the_types() -> None:
    orders = App("typed").stream("orders", Order)
    assert_type(orders.filter(lambda order: order.total > 1), Stream[str, Order])
    assert_type(orders.filter(f.col("total") > 1), Stream[str, Order])
    assert_type(orders.map(country_of), Stream[str, str])
    assert_type(orders.select_key(country_of), Stream[str, Order])
    grouped = orders.group_by(country_of)
    assert_type(grouped.count(), Table[str, int])
    assert_type(grouped.aggregate(0.0, add), Table[str, float])
    assert_type(grouped.window(tumbling("1 minute")).count(), Table[Windowed[str], int])
    assert_type(orders.process(Totals), Stream[str, float])
    assert_type(orders.to_table(), Table[str, Order])
    assert_type(orders.select("country"), Stream[str, Any])


def test_a_wrong_field_in_a_function_is_found() -> None:
    orders = App("typed").stream("orders", Order)
    orders.filter(lambda order: order.totl > 1)  # type: ignore[attr-defined]
    orders.group_by_key().aggregate(0.0, lambda total, order: total + order.totl, to=float)  # type: ignore[attr-defined]
    countries = App("typed").table("countries", Country)
    countries.filter(lambda country: country.nme == "")  # type: ignore[attr-defined]
    numbers = App("typed").stream("numbers", int)
    with pytest.raises(TopologyError, match="it takes Order, and numbers-1 has int"):
        numbers.process(Totals)  # type: ignore[arg-type]
