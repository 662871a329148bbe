"""`headwater txn` against a broker: what it shows, what it ends, what it refuses.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.transactions import PRODUCE_V1, TransactionalProducer
from harness.wire import Wire, until
from headwater.blocking import Admin, Producer
from headwater.cli.main import main
from headwater.client.admin import broker_config
from headwater.client.errors import ClientError, ProducerFenced
from headwater.testing import EmbeddedBroker, MakeHeadwaterBroker

Txn = Callable[..., Any]
_VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def txn(
    shared_broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Txn:
    """Runs `headwater txn` and gives what it prints, read as JSON if it is."""
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", shared_broker.bootstrap)

    def run(*arguments: str, code: int = 0) -> Any:
        assert main(("txn", *arguments)) == code, capsys.readouterr()
        printed = capsys.readouterr()
        return json.loads(printed.out) if "json" in arguments else printed.out + printed.err

    return run


@pytest.fixture
def open_transaction(shared_broker: EmbeddedBroker, topic: str) -> Iterator[Producer]:
    """A producer with an open transaction; its transactional id is the name of the topic."""
    producer = Producer(shared_broker.bootstrap, transactional_id=topic)
    try:
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0)
        yield producer
    finally:
        producer.close()


def test_open_transactions_are_listed_and_described(
    txn: Txn, open_transaction: Producer, topic: str
) -> None:
    listed = txn("list", "--state", "Ongoing", "--output", "json")
    (own,) = [each for each in listed if each["transactional_id"] == topic]
    assert own["state"] == "Ongoing"
    assert topic in txn("list", "--longer-than", "0s")
    assert topic not in txn("list", "--longer-than", "1d")
    assert topic in txn("list")
    assert topic not in txn("list", "--state", "CompleteCommit")
    shown = txn("describe", topic, "--output", "json")
    assert shown["partitions"] == [{"topic": topic, "partition": 0}]
    assert shown["open_for_ms"] >= 0
    assert f"{topic}-0" in txn("describe", topic)


def test_the_producers_of_a_partition_show_what_is_open(
    txn: Txn, open_transaction: Producer, topic: str
) -> None:
    (shown,) = txn("producers", f"{topic}:0", "--output", "json")
    assert shown["open_since_offset"] == 0
    assert "open_since_offset" in txn("producers", topic)


def test_a_transaction_is_aborted_only_with_yes(
    txn: Txn, open_transaction: Producer, topic: str
) -> None:
    assert "nothing has changed yet" in txn("abort", topic)
    assert txn("describe", topic, "--output", "json")["state"] == "Ongoing"
    assert "aborted" in txn("abort", topic, "--yes")
    with pytest.raises(ClientError):
        open_transaction.commit_transaction()


def test_what_its_coordinator_knows_does_not_hang(
    txn: Txn, open_transaction: Producer, topic: str
) -> None:
    assert txn("hanging", "--topic", topic, "--older-than", "0s", "--output", "json") == []
    assert "no transaction hangs" in txn("hanging", "--topic", topic)
    # It holds up readers all the same, as long as it is open.
    assert f"wait for {topic} (Ongoing)" in txn("hanging", "--topic", topic, "--older-than", "0s")
    assert topic not in txn("hanging", "--topic", topic, "--older-than", "1d")


def test_an_abort_says_so_if_there_is_nothing_to_abort(
    txn: Txn, shared_broker: EmbeddedBroker, topic: str
) -> None:
    with Producer(shared_broker.bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"x")
        assert topic in txn("list")
        assert topic not in txn("list", "--longer-than", "0s")  # it is not open any more
        ended = txn("describe", topic, "--output", "json")
        assert (ended["started"], ended["open_for_ms"]) == (None, None)
        assert "only fences" in txn("abort", topic)
        assert "nothing to abort" in txn("abort", topic, "--yes")
        told = txn("abort", topic, "--yes", "--output", "json")
        assert (told["aborted"], told["fenced"]) == (False, True)
        with pytest.raises(ProducerFenced), producer.transaction():
            producer.send(topic, b"y")


def test_a_transaction_that_hangs_is_found_and_ended(
    txn: Txn, shared_broker: EmbeddedBroker, topic: str
) -> None:
    """Without verification, what a producer of version 1 writes after its commit begins a
    transaction that its coordinator never hears of."""
    with Admin(shared_broker.bootstrap) as admin, Wire(shared_broker.bootstrap) as wire:
        wire.create_topic(topic)
        admin.alter_config(broker_config(), {_VERIFICATION: "false"})
        try:
            producer = TransactionalProducer(wire, topic)
            producer.init(version=5)
            until(
                lambda: producer.produce(topic, b"late", version=PRODUCE_V1) == 0 or None,
                "a broker that does not verify",
            )
        finally:
            admin.alter_config(broker_config(), {_VERIFICATION: None})
    young = ("--older-than", "36500d", "--output", "json")
    assert txn("hanging", "--topic", topic, *young) == []
    (found,) = txn("hanging", "--topic", topic, "--older-than", "0s", "--output", "json")
    assert (found["start"], found["transactional_id"]) == (0, topic)
    assert f"--topic {topic}:0 --start 0" in txn("hanging", "--topic", topic, "--older-than", "0s")
    at = ("abort", "--topic", f"{topic}:0", "--start", "0")
    assert "nothing has changed yet" in txn(*at)
    assert "aborted" in txn(*at, "--yes")
    assert txn("hanging", "--topic", topic, "--older-than", "0s", "--output", "json") == []
    with Wire(shared_broker.bootstrap) as wire:
        assert wire.offset_at(topic, -1, isolation_level=1).offset == 2


def test_a_prepared_transaction_is_shown_and_aborted(
    make_headwater_broker: MakeHeadwaterBroker, txn: Txn, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_headwater_broker(
        {
            "unstable.api.versions.enable": "true",
            "transaction.two.phase.commit.enable": "true",
            "transaction.max.timeout.ms": "1000",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        },
        topics={"orders": 1},
    )
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.bootstrap)
    producer = Producer(
        broker.bootstrap, transactional_id="t", transaction_two_phase_commit_enable=True
    )
    producer.begin_transaction()
    producer.submit("orders", b"x")
    producer.prepare_transaction()
    producer.close()
    (listed,) = txn("list", "--output", "json")
    assert (listed["transactional_id"], listed["state"]) == ("t", "Ongoing")
    assert "two-phase commit" in txn("describe", "t")
    assert "aborted" in txn("abort", "t", "--yes")
    with Wire(broker.bootstrap) as wire:
        until(
            lambda: wire.offset_at("orders", -1, isolation_level=1).offset == 2 or None, "the end"
        )


def test_mistakes_are_explained(txn: Txn, open_transaction: Producer, topic: str) -> None:
    assert "give a transactional id" in txn("abort", code=2)
    assert "no transaction is ever in state Ongiong" in txn("list", "--state", "Ongiong", code=1)
    assert "--start" in txn("abort", "--topic", f"{topic}:0", code=2)
    assert "no transaction that begins at" in txn(
        "abort", "--topic", f"{topic}:0", "--start", "77", code=1
    )
    assert "TRANSACTIONAL_ID_NOT_FOUND" in txn("describe", f"{topic}-unknown", code=1)
