"""Tests of the shop: the processor without Spark, the topology without a cluster."""

from datetime import UTC, datetime, timedelta

from examples.streams.shop import Alarm, Customer, Order, Reading, Silence, app
from headwater.streams import ProcessorTest, TopologyTest

AT = datetime(2026, 3, 1, 8, tzinfo=UTC)


def test_a_silent_door_is_told() -> None:
    test = ProcessorTest(Silence, late="10 seconds")
    test.pipe(Reading(20.5, AT), key="cellar", timestamp=AT)
    test.advance_to(AT + timedelta(minutes=6))
    assert test.values() == [Alarm("cellar", AT)]


def test_totals_by_country() -> None:
    with TopologyTest(app) as test:
        test.pipe("customers", Customer("Ada", "at"), key="ada", timestamp=AT)
        test.pipe("orders", Order(1, "at", 12.0, AT), key="ada")
        test.pipe("orders", Order(2, "at", -1.0, AT), Order(3, "de", 1500.0, AT), key="bob")
        assert test.table("totals", value="orders bigint, total double") == {
            "at": {"orders": 2, "total": 11.0},
            "de": {"orders": 1, "total": 1500.0},
        }
        assert [order.order_id for order in test.values("large-orders")] == [3]
        (letter,) = test.dead_letters()
        assert b"order 2 costs -1.0" in (letter.header("headwater.reason") or b"")
