"""Tests with a broker: topics, records, settings, faults.

pytest examples/testing
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as OtherProducer

from headwater import Producer, RecordTooLarge, RequestTimedOut, blocking
from headwater.testing import EmbeddedBroker, MakeHeadwaterBroker


def ship(bootstrap: str) -> None:
    """Stands for your code: for every order, it sends a parcel."""
    with (
        blocking.Consumer(
            bootstrap, group="shipping", topics=["orders"], auto_offset_reset="earliest"
        ) as orders,
        blocking.Producer(bootstrap) as parcels,
    ):
        for order in orders.poll(timeout_ms=10_000):
            parcels.send("parcels", b"a box of " + order.value, key=order.key)


@pytest.mark.headwater(topics={"orders": 3, "parcels": 1})
def test_every_order_is_shipped(headwater_broker: EmbeddedBroker) -> None:
    headwater_broker.send("orders", "tea", key="alice")
    ship(headwater_broker.bootstrap)
    (parcel,) = headwater_broker.records("parcels")
    assert (parcel.key, parcel.value) == (b"alice", b"a box of tea")


def test_any_client_will_do(headwater_broker: EmbeddedBroker) -> None:
    producer = OtherProducer({"bootstrap.servers": headwater_broker.bootstrap})
    producer.produce("orders", "tea")
    (order,) = headwater_broker.records("orders", 1)  # waits until there is one
    assert order.value == b"tea"


@pytest.mark.headwater({"message.max.bytes": "1000"})
def test_settings_are_kafkas(headwater_broker: EmbeddedBroker) -> None:
    with pytest.raises(RecordTooLarge):
        headwater_broker.send("orders", "x" * 2000)


def test_a_broker_restarts_with_its_data(headwater_broker: EmbeddedBroker) -> None:
    headwater_broker.send("orders", "tea")
    headwater_broker.restart()  # or stop(), look at what your code does, start()
    assert len(headwater_broker.records("orders")) == 1


@pytest.mark.headwater(tls=True, users={"alice": "wonder"})
def test_the_service_logs_in(headwater_broker: EmbeddedBroker) -> None:
    with blocking.Producer(
        headwater_broker.bootstrap, **headwater_broker.client_settings
    ) as producer:
        producer.send("orders", "tea")


def test_a_broker_stalls(headwater_broker: EmbeddedBroker) -> None:
    with blocking.Producer(headwater_broker.bootstrap) as producer:
        producer.send("orders", "tea")
        headwater_broker.pause()  # connections stay open, nothing is answered
        producer.submit("orders", "milk")
        with pytest.raises(RequestTimedOut):
            producer.flush(timeout_ms=100)
        headwater_broker.resume()
    assert len(headwater_broker.records("orders")) == 2


def test_connections_break(headwater_broker: EmbeddedBroker) -> None:
    with blocking.Producer(headwater_broker.bootstrap) as producer:
        for number in range(10):
            producer.send("orders", f"order {number}")
            headwater_broker.drop_connections()
    assert len(headwater_broker.records("orders")) == 10


def test_two_clusters(make_headwater_broker: MakeHeadwaterBroker) -> None:
    here, there = make_headwater_broker(), make_headwater_broker({"num.partitions": "3"})
    here.send("orders", "tea")
    assert there.records("orders") == []


@pytest.fixture(scope="module")
def broker_of_this_module() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 3}) as broker:
        yield broker


def test_a_fixture_of_another_scope(broker_of_this_module: EmbeddedBroker) -> None:
    broker_of_this_module.send("orders", "tea")


class ShippingTest(unittest.TestCase):
    def setUp(self) -> None:
        self.broker = self.enterContext(EmbeddedBroker(topics={"orders": 1, "parcels": 1}))

    def test_every_order_is_shipped(self) -> None:
        self.broker.send("orders", "tea")
        ship(self.broker.bootstrap)
        assert len(self.broker.records("parcels")) == 1


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def test_the_broker_is_in_a_thread_of_its_own(self) -> None:
        with EmbeddedBroker() as broker:
            async with Producer(broker.bootstrap) as producer:
                await producer.send("orders", "tea")
            assert len(broker.records("orders")) == 1
