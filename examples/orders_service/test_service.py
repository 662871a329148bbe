"""The service against a real broker, which each test has for itself: no container, no mock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import pytest
from fastapi.testclient import TestClient
from service import make_app

from headwater.blocking import Consumer
from headwater.testing import EmbeddedBroker


@pytest.fixture
def client(headwater_broker: EmbeddedBroker) -> Iterator[TestClient]:
    with TestClient(make_app(headwater_broker.bootstrap)) as client:
        yield client


def total(client: TestClient, customer: str, expected: int) -> int:
    """The total, as soon as it is what it should be; an order takes a moment to come round."""
    deadline = time.monotonic() + 10
    while True:
        cents: int = client.get(f"/totals/{customer}").json()["cents"]
        if cents == expected or time.monotonic() > deadline:
            return cents


def test_orders_are_totalled(client: TestClient) -> None:
    for cents in (500, 250):
        assert client.post("/orders", json={"customer": "alice", "cents": cents}).status_code == 201
    assert total(client, "alice", 750) == 750


def test_orders_of_one_customer_are_in_one_partition(
    client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    order = {"customer": "bob", "cents": 1}
    places = {client.post("/orders", json=order).json()["partition"] for _ in range(5)}
    assert len(places) == 1
    with Consumer(
        headwater_broker.bootstrap, topics=["orders"], auto_offset_reset="earliest"
    ) as consumer:
        records = list(islice(consumer, 5))
    assert {record.key for record in records} == {b"bob"}


def test_a_restarted_service_knows_the_totals(
    client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    client.post("/orders", json={"customer": "carol", "cents": 100})
    with TestClient(make_app(headwater_broker.bootstrap)) as another:
        assert total(another, "carol", 100) == 100


def test_an_order_that_is_none_is_refused(client: TestClient) -> None:
    assert client.post("/orders", json={"customer": "dave", "cents": -1}).status_code == 422
