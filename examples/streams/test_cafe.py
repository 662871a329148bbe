"""Tests of the café: `pytest examples/streams/test_cafe.py`."""

from datetime import UTC, datetime, timedelta

from examples.streams.cafe import Item, Order, app
from headwater.testing.plugin import MakeTopologyTest

EIGHT = datetime(2026, 3, 1, 8, tzinfo=UTC)


def test_an_hour_at_the_cafe(headwater_topology: MakeTopologyTest) -> None:
    test = headwater_topology(app)
    test.pipe("menu", Item("Earl Grey", 2.5), key="tea", timestamp=EIGHT)
    test.pipe("orders", Order(2, EIGHT), Order(1, EIGHT), key="tea")
    assert test.table("sales")["Earl Grey"] == {"cups": 3, "revenue": 7.5}
    assert test.values("revenue-by-hour", value=bytes) == []  # the hour is not over
    test.advance_to(EIGHT + timedelta(hours=1))
    assert test.values("revenue-by-hour", value=float) == [7.5]
