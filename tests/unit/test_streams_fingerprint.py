"""The parts of its checkpoints that a changed topology keeps and loses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headwater.streams import App, f, tumbling
from headwater.streams.fingerprint import changes, to_json


@dataclass
class Order:
    country: str
    total: float
    at: datetime


def shop(*, column: str = "total", key: str = "country", minimum: int = 0) -> App:
    app = App("shop")
    orders = app.stream("orders", Order, time="at")
    kept = orders.filter(f.col("total") > minimum)
    kept.group_by(key).window(tumbling("5 minutes")).sum(column, name="revenue").to("revenue")
    orders.group_by("country").count(name="counts").to("counts")
    return app


def files(app: App) -> dict[str, str | None]:
    return {query.name: to_json(query) for query in app.plan().queries}


def test_the_same_topology_continues() -> None:
    found = changes(shop().plan(), files(shop()))
    assert (found.continued, found.new, found.lost, found.left) == (
        ("revenue", "counts"),
        (),
        {},
        (),
    )
    assert found.lines() == []


def test_what_has_no_state_may_change() -> None:
    assert changes(shop(minimum=10).plan(), files(shop())).continued == ("revenue", "counts")


def test_another_aggregate_or_key_loses_the_state_of_its_query_alone() -> None:
    found = changes(shop(column="at").plan(), files(shop()))
    assert found.continued == ("counts",)
    assert found.lost == {
        "revenue": "its state was that of aggregate sum('total') in tumbling 5 minutes by country, "
        "and is now aggregate sum('at') in tumbling 5 minutes by country"
    }
    assert "loses the state and the position of revenue" in found.lines()[1]
    assert set(changes(shop(key="at").plan(), files(shop())).lost) == {"revenue"}


def test_new_and_removed_queries_are_named() -> None:
    app = shop()
    app.stream("lines", str).to("copy")
    found = changes(app.plan(), files(shop()))
    assert (found.new, found.left) == (("copy",), ())
    assert found.lines() == [
        "keeps the state and the position of revenue, counts",
        "starts copy from the beginning",
    ]
    assert changes(shop().plan(), files(app)).left == ("copy",)


def test_another_source_loses_the_position() -> None:
    app = App("shop")
    app.stream("more-orders", Order).group_by("country").count(name="counts")
    found = changes(app.plan(), files(shop()))
    assert found.lost == {"counts": "it read orders, and now reads more-orders"}


def test_a_checkpoint_of_something_else_is_not_used() -> None:
    found = changes(shop().plan(), {"revenue": None, "counts": "{"})
    assert found.lost == {
        "revenue": "it was not written by headwater streams",
        "counts": "headwater-topology.json cannot be read",
    }
