"""Which queries can have their state from the topic of their table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from headwater.streams import App, f, session, sliding, tumbling
from headwater.streams.restoring import has_counts, source_of, why_not


@dataclass
class Order:
    country: str
    total: float
    at: datetime


def reason(make: Callable[[Any], Any]) -> str | None:
    app = App("shop")
    make(app.stream("orders", Order, time="at").group_by("country"))
    (query,) = (each for each in app.plan().queries if each.head is not None)
    return why_not(query)


def longest(one: Order, other: Order) -> Order:
    return max(one, other, key=lambda order: order.total)


def add(total: float, order: Order) -> float:
    return total + order.total


@pytest.mark.parametrize(
    "make",
    [
        lambda by: by.count(name="t"),
        lambda by: by.agg(n=f.count("total"), s=f.sum("total"), m=f.max("at"), name="t"),
        lambda by: by.window(tumbling("1 minute")).min("total", name="t"),
        lambda by: by.reduce(longest, name="t"),
        lambda by: by.window(tumbling("1 minute")).aggregate(0.0, add, name="t"),
        lambda by: by.window(session("1 minute")).reduce(longest, name="t"),
    ],
)
def test_an_aggregation_whose_results_have_all_that_it_keeps(make: Callable[[Any], Any]) -> None:
    assert reason(make) is None


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda by: by.count().to("out"), "count-1 is not a table with a name"),
        (lambda by: by.avg("total", name="t"), "avg('total') keeps more than its result"),
        (
            lambda by: by.agg(a=f.sum("total") / f.count("total"), name="t"),
            "(sum('total') / count('total')) keeps more than its result",
        ),
        (lambda by: by.agg(a=f.max("_timestamp"), name="t"), "two of its columns are the same"),
        (
            lambda by: by.window(sliding("1 minute")).reduce(longest, name="t"),
            "t keeps more than its results",
        ),
        (
            lambda by: by.window(tumbling("1 minute")).count(name="t").final().to("out"),
            "its table has only windows that are closed",
        ),
    ],
)
def test_others_keep_what_is_not_there(make: Callable[[Any], Any], why: str) -> None:
    assert (reason(make) or "").startswith(why)


def test_what_another_operator_of_the_query_keeps_is_not_in_the_table() -> None:
    app = App("shop")
    app.table("orders", Order).group_by("country").count(name="t")
    (query,) = app.plan().queries
    assert why_not(query) == "group-by-1 keeps what is not in the table t"
    assert source_of(query).name == "shop-t-changelog"


def test_a_rebuild_says_that_counts_take_time() -> None:
    app = App("shop")
    by = app.stream("orders", Order, time="at").group_by("country")
    by.agg(n=f.count("total"), s=f.sum("total"), name="counts")
    by.max("total", name="largest")
    by.reduce(longest, name="longest")
    assert {each.name: has_counts(each) for each in app.plan().queries} == {
        "counts": True,
        "largest": False,
        "longest": False,
    }
