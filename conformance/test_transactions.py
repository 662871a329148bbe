"""Kafka's own transactional tools, and folders with open transactions that change hands."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from conformance.conftest import Subject
from conformance.records import create_topic, produce
from conformance.test_disk import dump, files
from conformance.test_exchange import handed_over, voters_are_in_the_log
from harness import kafka_jars
from harness.nodes import Flavour, Headwater, Kafka, Node, run_java
from harness.transactions import TransactionalProducer, find_coordinator
from harness.wire import Wire, until
from headwater import ClientError, _core
from headwater.blocking import Producer as BlockingProducer

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
_GROUP_COPIER = Path(__file__).parent / "java" / "GroupCopier.java"
_STARTS_OF_KAFKA_MAX = 8
_PATIENCE = 60.0
_TOPIC = "orders"
_TWO_PHASES = {
    "unstable_api_versions_enable": "true",
    "transaction_two_phase_commit_enable": "true",
}


def committed_values(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    """Everything below the last stable offset that was not aborted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    found: list[bytes] = []
    try:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                record = consumer.poll(_PATIENCE)
                assert record is not None, f"the end of {topic}-{partition} did not come"
                if record.error():
                    break
                found.append(record.value() or b"")
    finally:
        consumer.close()
    return found


def begin(bootstrap: str, topic: str, transactional_id: str, value: str) -> Any:
    """Returns librdkafka's producer with a record in an open transaction."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "log_level": 2,
        }
    )
    producer.init_transactions(_PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    assert producer.flush(_PATIENCE) == 0
    return producer


def rows(printed: str) -> list[dict[str, str]]:
    """The table that a tool prints, by its heads."""
    lines = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    heads = [head.strip() for head in lines[0]]
    return [dict(zip(heads, map(str.strip, line), strict=False)) for line in lines[1:]]


def test_producer_performance_in_transactions(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic, 3)
    arguments = ["--topic", topic, "--num-records", "20000", "--record-size", "100"]
    arguments += ["--throughput", "-1", "--bootstrap-server", subject.bootstrap]
    arguments += ["--transactional-id", f"{topic}-id", "--transaction-duration-ms", "100"]
    done = run_java(subject.jars, PERFORMANCE, *arguments)
    assert "20000 records sent" in done.stdout, done.stdout + done.stderr
    assert len(committed_values(subject.bootstrap, topic, 3)) == 20000


@pytest.mark.parametrize("more", [(), ("--use-group-metadata",)], ids=["by name", "by member"])
def test_the_copier_copies_each_record_once(
    subject: Subject, topic: str, more: Sequence[str]
) -> None:
    """It aborts at random, and begins again where the last transaction was committed."""
    copy, count = f"{topic}-copy", 500
    create_topic(subject.bootstrap, topic)
    create_topic(subject.bootstrap, copy)
    values = [b"%d" % number for number in range(count)]
    produce(subject.bootstrap, topic, "none", values)
    arguments = ["--broker-list", subject.bootstrap, "--transactional-id", f"{topic}-id"]
    arguments += ["--input-topic", topic, "--input-partition", "0", "--output-topic", copy]
    arguments += ["--consumer-group", f"{topic}-group", "--transaction-size", "50"]
    arguments += ["--max-messages", str(count), "--enable-random-aborts", "--group-mode", *more]
    done = run_java(subject.jars, COPIER, *arguments)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert events, done.stdout + done.stderr
    assert committed_values(subject.bootstrap, copy) == values


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_the_java_client_copy_each_record_once(
    subject: Subject, topic: str, protocol: str, tmp_path: Path
) -> None:
    """Kafka's own copier is a classic member only. These two abort at random, and one of them is
    killed; its successor has the same transactional id."""
    copy, count = f"{topic}-copy", 1200
    create_topic(subject.bootstrap, topic, 4)
    create_topic(subject.bootstrap, copy, 2)
    values = [b"%d" % number for number in range(count)]
    produce(subject.bootstrap, topic, "none", values[: count // 2])

    def copied(at_least: int) -> list[bytes]:
        return until(
            lambda: (
                found
                if len(found := committed_values(subject.bootstrap, copy, 2)) >= at_least
                else None
            ),
            f"{at_least} copies",
            4 * _PATIENCE,
        )

    with ExitStack() as stack:

        def start(name: str) -> subprocess.Popen[bytes]:
            command = kafka_jars.java_command(
                subject.jars,
                str(_GROUP_COPIER),
                *(subject.bootstrap, topic, copy, f"{topic}-group", protocol, f"{topic}-{name}"),
                options=("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            )
            output = stack.enter_context((tmp_path / f"{name}.out").open("ab"))
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        first, _ = start("first"), start("second")
        copied(1)
        produce(subject.bootstrap, topic, "none", values[count // 2 :])
        copied(count // 2)
        first.kill()
        first.wait()
        start("first")
        found = copied(count)
    assert sorted(found, key=int) == values
    printed = "".join(path.read_text() for path in tmp_path.glob("*.out"))
    assert "by chance" in printed, printed


def test_the_transactions_tool_lists_describes_and_aborts(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic)
    name = f"{topic}-id"
    producer = begin(subject.bootstrap, topic, name, "open")

    def listed(*more: str) -> dict[str, dict[str, str]]:
        found = rows(subject.tool(TRANSACTIONS, "list", *more))
        return {row["TransactionalId"]: row for row in found}

    assert listed()[name]["TransactionState"] == "Ongoing"
    assert name in listed("--duration-filter", "0")
    assert name not in listed("--duration-filter", "3600000")
    assert set(listed("--transactional-id-pattern", f"{name}.*")) == {name}
    (described,) = rows(subject.tool(TRANSACTIONS, "describe", "--transactional-id", name))
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "600000"
    assert described["TopicPartitions"] == f"{topic}-0"
    at = ("--topic", topic, "--partition", "0")
    (writing,) = rows(subject.tool(TRANSACTIONS, "describe-producers", *at))
    assert writing["ProducerId"] == described["ProducerId"]
    assert writing["CurrentTransactionStartOffset"] == "0"
    hanging = subject.tool(TRANSACTIONS, "find-hanging", *at)
    assert rows(hanging) == []
    assert committed_values(subject.bootstrap, topic) == []
    subject.tool(TRANSACTIONS, "abort", *at, "--start-offset", "0")
    (ended,) = rows(subject.tool(TRANSACTIONS, "describe-producers", *at))
    assert ended["CurrentTransactionStartOffset"] == "None"
    subject.tool(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", name)
    until(lambda: listed()[name]["TransactionState"] != "Ongoing" or None, "the end", _PATIENCE)
    del producer


def test_the_transactions_tool_ends_a_prepared_transaction(
    new_node: Callable[..., Node], jars: Path, flavour: Flavour
) -> None:
    """Kafka 4.3 does not serve two-phase commit itself: there the transaction is just an open
    one."""
    settings = {} if isinstance(flavour, Kafka) else _TWO_PHASES
    node = new_node(**settings).start()
    create_topic(node.bootstrap, _TOPIC)
    producer = BlockingProducer(
        node.bootstrap, transactional_id="t", transaction_two_phase_commit_enable=bool(settings)
    )
    producer.begin_transaction()
    producer.send(_TOPIC, b"prepared")
    if settings:
        producer.prepare_transaction()
        producer.close()  # and leaves it as it is
    subject = Subject(node.bootstrap, jars)
    (listed,) = rows(subject.tool(TRANSACTIONS, "list"))
    assert (listed["TransactionalId"], listed["TransactionState"]) == ("t", "Ongoing")
    subject.tool(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", "t")
    until(
        lambda: (
            rows(subject.tool(TRANSACTIONS, "list"))[0]["TransactionState"] != "Ongoing" or None
        ),
        "the end of the transaction",
        _PATIENCE,
    )
    assert committed_values(node.bootstrap, _TOPIC) == []
    if not settings:
        with suppress(ClientError):
            producer.close()


# Folders


def open_transactions(node: Node) -> list[TransactionalProducer]:
    """A committed, an aborted and an open transaction; returns their producers."""
    create_topic(node.bootstrap, _TOPIC)
    producers = []
    with Wire(node.bootstrap) as wire:
        for number, commits in enumerate((True, False, None)):
            producer = TransactionalProducer(wire, f"t{number}")
            producers.append(producer)
            producer.init(transaction_timeout_ms=600_000)  # a busy machine takes minutes to start
            assert producer.produce(_TOPIC, b"%d" % number) == 0
            if commits is not None:
                producer.end(commits=commits)
                until(
                    lambda producer=producer: (  # type: ignore[misc]
                        producer.describe().transaction_state.startswith("Complete") or None
                    ),
                    f"the end of {producer.id}",
                )
    return producers


def go_on(node: Node, producers: Sequence[TransactionalProducer]) -> None:
    """All of them as the other node left them; then the open one is committed."""
    with Wire(node.bootstrap) as wire:
        states = []
        for producer in producers:
            find_coordinator(wire, producer.id)
            producer.wire = wire
            until(
                lambda producer=producer: (  # type: ignore[misc]
                    producer.describe().error_code == 0 or None
                ),
                f"the state of {producer.id}",
            )
            found = producer.describe()
            states.append(found)
            assert (found.producer_id, found.producer_epoch) == (
                producer.producer_id,
                producer.epoch,
            )
        assert [each.transaction_state for each in states] == [
            "CompleteCommit",
            "CompleteAbort",
            "Ongoing",
        ]
        assert [(each.topic, each.partitions) for each in states[2].topics] == [(_TOPIC, [0])]
        assert committed_values(node.bootstrap, _TOPIC) == [b"0"]
        assert producers[2].produce(_TOPIC, b"3") == 0  # the next sequence of the same transaction
        producers[2].end(commits=True)
        until(
            lambda: committed_values(node.bootstrap, _TOPIC) == [b"0", b"2", b"3"] or None,
            "the end of the transaction",
        )
        assert producers[0].produce(_TOPIC, b"4") == 0
        producers[0].end(commits=True)


def test_transactions_of_kafka_go_on_here(
    new_node: Callable[..., Node], jars: Path, flavour: Flavour
) -> None:
    first = new_node(Kafka(jars)).start()
    producers = open_transactions(first)
    second = handed_over(first, new_node(flavour, node_id="1"))
    go_on(second, producers)


def test_transactions_of_ours_go_on_in_kafka(new_node: Callable[..., Node], jars: Path) -> None:
    first = new_node(Headwater()).start()
    producers = open_transactions(first)
    first.stop()
    kafka = Kafka(jars, static_voters=not voters_are_in_the_log(first.log_folder))
    second = handed_over(first, new_node(kafka))
    go_on(second, producers)


@pytest.mark.parametrize("commits", [True, False], ids=["to commit", "to abort"])
@pytest.mark.parametrize("direction", ["from kafka", "to kafka"])
def test_a_prepared_end_is_carried_out_by_the_other(
    new_node: Callable[..., Node], jars: Path, flavour: Flavour, direction: str, *, commits: bool
) -> None:
    """A node dies between the record of the outcome and the marker: what comes after the record is
    cut off."""
    ours = direction == "to kafka"
    first = new_node(
        Headwater() if ours else Kafka(jars), transaction_state_log_num_partitions="1"
    ).start()
    # Or the marker would begin another segment: it is much newer than the record.
    create_topic(first.bootstrap, _TOPIC, segment_ms="1000000000000")
    with Wire(first.bootstrap) as wire:
        producer = TransactionalProducer(wire, "t")
        producer.init()
        assert producer.produce(_TOPIC, b"x") == 0
        producer.end(commits=commits)
        until(lambda: producer.describe().transaction_state.startswith("Complete") or None, "it")
    first.kill()
    for partition in (f"{_TOPIC}-0", "__transaction_state-0"):
        cut_last_batch(first.log_folder / partition)
    for checkpoint in first.log_folder.glob("*-offset-checkpoint"):
        checkpoint.unlink()

    def make_second() -> Node:
        if ours:
            static = not voters_are_in_the_log(first.log_folder)
            return new_node(Kafka(jars, static_voters=static))
        return new_node(flavour, node_id="1")

    state = "CompleteCommit" if commits else "CompleteAbort"
    second = completed(first, make_second, producer, state)
    with Wire(second.bootstrap) as wire:
        producer.wire = wire
        assert wire.offset_at(_TOPIC, -1, isolation_level=1).offset == 2
        assert committed_values(second.bootstrap, _TOPIC) == ([b"x"] if commits else [])
        assert producer.produce(_TOPIC, b"next") == 0
        producer.end(commits=True)
        until(lambda: committed_values(second.bootstrap, _TOPIC)[-1:] == [b"next"] or None, "more")


def completed(
    first: Node, make: Callable[[], Node], producer: TransactionalProducer, state: str
) -> Node:
    """Starts a node on a copy of the folder and waits until it has completed the transaction.

    Apache Kafka completes it without a marker if its coordinator is loaded before it knows the
    leader of the partition, which on a busy machine is every third start; it is tried again.
    """
    for left in reversed(range(_STARTS_OF_KAFKA_MAX)):
        second = make()
        shutil.copytree(first.log_folder, second.log_folder)
        second.start()
        with Wire(second.bootstrap) as wire:
            find_coordinator(wire, producer.id)
            producer.wire = wire
            until(lambda: producer.describe().transaction_state == state or None, state, _PATIENCE)
            has_marker = wire.offset_at(_TOPIC, -1).offset == 2
        if has_marker or not left or not isinstance(second.flavour, Kafka):
            break
        second.kill()
    return second


def cut_last_batch(folder: Path) -> None:
    """Cuts it off as a crash would, with all that is derived from the log."""
    (log,) = folder.glob("*.log")
    batches = _core.scan(log.read_bytes())[0]
    with log.open("r+b") as file:
        file.truncate(batches[-1].position)
    for kind in ("index", "timeindex", "txnindex", "snapshot"):
        for derived in folder.glob(f"*.{kind}"):
            derived.unlink()


def test_dump_log_segments_reads_the_coordinators_log(
    new_node: Callable[..., Node], jars: Path
) -> None:
    node = new_node(transaction_state_log_num_partitions="1").start()
    open_transactions(node)
    node.stop()
    log = files(node.log_folder / "__transaction_state-0", ".log")
    printed = dump(jars, "--files", log, "--deep-iteration", "--transaction-log-decoder")
    statuses: dict[str, list[int]] = {}
    for line in printed.splitlines():
        key, _, value = line.partition(" payload: ")
        if value:
            data = json.loads(key.partition(" key: ")[2])["data"]
            status = json.loads(value)["data"]["transactionStatus"]
            statuses.setdefault(data["transactionalId"], []).append(status)
    # Empty, Ongoing, PrepareCommit or PrepareAbort, CompleteCommit or CompleteAbort.
    assert statuses == {"t0": [0, 1, 2, 4], "t1": [0, 1, 3, 5], "t2": [0, 1]}
