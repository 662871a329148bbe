"""The service against a real broker, which each test has for itself: no container, no mock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from service import TOPIC, make_app

from headwater import BrokersUnavailable
from headwater.testing import EmbeddedBroker


@pytest.fixture
def client(headwater_broker: EmbeddedBroker) -> Iterator[TestClient]:
    with TestClient(make_app(headwater_broker.bootstrap)) as client:
        yield client


@pytest.fixture
def hasty_client(headwater_broker: EmbeddedBroker) -> Iterator[TestClient]:
    with TestClient(make_app(headwater_broker.bootstrap, patience_ms=300)) as client:
        yield client


def order(customer: str, cents: int) -> dict[str, Any]:
    return {"id": str(uuid4()), "customer": customer, "cents": cents}


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


def test_an_order_is_in_the_topic_under_its_customer(
    client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    client.post("/orders", json=order("bob", 100))
    (record,) = headwater_broker.records("orders", 1)
    assert record.key == b"bob"
    assert b'"cents":100' in record.value


def test_orders_of_one_customer_are_in_one_partition(client: TestClient) -> None:
    places = {client.post("/orders", json=order("bob", 1)).json()["partition"] for _ in range(5)}
    assert len(places) == 1


def test_a_restarted_service_knows_the_totals(
    client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    client.post("/orders", json=order("carol", 100))
    with TestClient(make_app(headwater_broker.bootstrap)) as another:
        assert total(another, "carol", 100) == 100


def test_an_order_that_is_none_is_refused(client: TestClient) -> None:
    assert client.post("/orders", json=order("dave", -1)).status_code == 422


def test_an_order_that_is_sent_twice_counts_once(client: TestClient) -> None:
    for sent in (twice := order("erin", 100), twice, order("erin", 1)):
        assert client.post("/orders", json=sent).status_code == 201
    assert total(client, "erin", 101) == 101


def test_a_record_that_is_no_order_is_passed_over(
    client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    headwater_broker.send(TOPIC, "not an order", key="frank")
    client.post("/orders", json=order("frank", 100))
    assert total(client, "frank", 100) == 100
    assert client.get("/health").status_code == 200


def test_a_broker_that_restarts_is_not_noticed(
    client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    client.post("/orders", json=order("grace", 100))
    headwater_broker.restart()
    assert client.post("/orders", json=order("grace", 1)).status_code == 201
    assert total(client, "grace", 101) == 101


def test_while_the_broker_is_away_orders_are_given_back(
    hasty_client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    headwater_broker.stop()
    answer = hasty_client.post("/orders", json=order("heidi", 100))
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert hasty_client.get("/health").status_code == 200
    headwater_broker.start()
    assert hasty_client.post("/orders", json=order("heidi", 1)).status_code == 201
    assert total(hasty_client, "heidi", 1) == 1


def test_an_order_that_was_stored_without_an_answer_may_be_sent_again(
    hasty_client: TestClient, headwater_broker: EmbeddedBroker
) -> None:
    assert hasty_client.post("/orders", json=order("ivan", 10)).status_code == 201
    headwater_broker.pause()  # what it is sent now, it reads when it goes on
    unanswered = order("ivan", 100)
    assert hasty_client.post("/orders", json=unanswered).status_code == 503
    headwater_broker.resume()
    assert hasty_client.post("/orders", json=unanswered).status_code == 201
    assert hasty_client.post("/orders", json=order("ivan", 1)).status_code == 201
    assert total(hasty_client, "ivan", 111) == 111
    assert len(headwater_broker.records(TOPIC)) == 4  # it is there twice, and counts once


def test_without_a_broker_the_service_does_not_start(headwater_broker: EmbeddedBroker) -> None:
    headwater_broker.stop()
    with (
        pytest.raises(BrokersUnavailable, match=headwater_broker.bootstrap),
        TestClient(make_app(headwater_broker.bootstrap, patience_ms=300)),
    ):
        pass
