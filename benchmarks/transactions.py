"""Transactions on one node and on three: commits, throughput, consume-transform-produce, scans of
committed records, and the time that many transactional ids take to be served again.

Both brokers get the same properties. Clients are librdkafka's Python binding and Kafka's own tools.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.clients import transactional_performance
from benchmarks.rows import Measurement, Session, at_least, at_most, value_at_least
from harness import wire as plain
from harness.clusters import COMBINED, Cluster
from harness.nodes import Flavour, Kafka
from headwater.blocking import Admin
from headwater.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest

_PATIENCE = 120.0
_TRANSACTION = 1  # the key type of FindCoordinator
_PIPELINED = 64

# The middle of a chain, in a process of its own: whatever it reads it writes on, one transaction
# for each read.
_TRANSFORMER = """
import sys
from confluent_kafka import Consumer, Producer
bootstrap, source, target = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "chain", "log_level": 2,
                     "enable.auto.commit": False, "auto.offset.reset": "earliest",
                     "isolation.level": "read_committed", "fetch.wait.max.ms": 100})
consumer.subscribe([source])
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "chain", "linger.ms": 0,
                     "log_level": 2})
producer.init_transactions(30)
while True:
    first = consumer.poll(1)
    if first is None:
        continue
    # It would wait until it has as many as it is asked for, so it is asked for what is there.
    messages = [each for each in (first, *consumer.consume(99, timeout=0)) if not each.error()]
    if not messages:
        continue
    producer.begin_transaction()
    for each in messages:
        producer.produce(target, each.value().upper(), each.key())
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
"""

# Reads a partition to its end and prints the records per second since the first of them came.
_SCAN = """
import sys, time
from confluent_kafka import Consumer, TopicPartition
bootstrap, isolation = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "scan", "log_level": 2,
                     "enable.auto.commit": False, "isolation.level": isolation,
                     "enable.partition.eof": True, "queued.max.messages.kbytes": 131072})
consumer.assign([TopicPartition("scan", 0, 0)])
seen, started, ended = 0, None, False
while not ended:
    messages = consumer.consume(10000, timeout=1)
    ended = bool(messages) and messages[-1].error() is not None
    if started is None and messages:
        started, seen = time.monotonic(), -len(messages)
    seen += len(messages)
print(seen / (time.monotonic() - started))
"""


def transactions(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Measures one node, then a cluster of three."""
    for count, name in ((1, "one"), (3, "three")):
        label = "1 node" if count == 1 else f"{count} nodes"
        with _start(session, flavour, name, count) as nodes, Admin(nodes.bootstrap) as admin:
            for topic in ("single", "source", "target"):
                admin.create_topic(topic, partitions=1, replication=count)
            admin.create_topic("wide", partitions=6, replication=count)
            yield from _commits(session, nodes, f"transactions.{name}", label)
            yield _throughput(session, nodes, f"transactions.{name}", label)
            yield _chain(session, nodes, f"transactions.{name}", label)
            if count == 1:
                yield from _scan(session, nodes, admin)
    yield _load(session, flavour)


def _start(
    session: Session,
    flavour: Flavour,
    name: str,
    count: int,
    settings: dict[str, str] | None = None,
) -> Cluster:
    return Cluster(
        session.folder / f"{flavour.name}-transactions-{name}",
        session.jars if isinstance(flavour, Kafka) else None,
        roles=(COMBINED,) * count,
        settings=settings or {},
        as_shipped=True,
    ).start()


def _commits(session: Session, nodes: Cluster, key: str, label: str) -> Iterator[Measurement]:
    """Commits transactions of one record each, from one producer."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "transactional.id": "commits",
            "linger.ms": 0,
            "log_level": 2,
        }
    )
    producer.init_transactions(_PATIENCE)
    rates, latencies = [], []
    for seconds in (2, *[session.size(8, 3)] * session.size(3, 1)):  # the first is to warm up
        started, count, taken = time.monotonic(), 0, []
        while time.monotonic() - started < seconds:
            producer.begin_transaction()
            producer.produce("single", b"x" * 100)
            # As it is sent at once, the commit does not wait for it longer than it takes.
            asked = time.monotonic()
            producer.commit_transaction(_PATIENCE)
            taken.append(time.monotonic() - asked)
            count += 1
        rates.append(count / (time.monotonic() - started))
        latencies.append(statistics.median(taken) * 1000)
    what = f"{label}: committed transactions of one record, librdkafka"
    yield Measurement(f"{key}.rate", what, "/s", tuple(rates[1:]), at_least(3), more_is_better=True)
    what = f"{label}: such a commit, p50"
    yield Measurement(f"{key}.commit", what, "ms", tuple(latencies[1:]), at_most(0.5))


def _throughput(session: Session, nodes: Cluster, key: str, label: str) -> Measurement:
    records = session.size(1_000_000, 100_000)
    transactional_performance(session.jars, nodes, "wide", records=records // 4, size=100)
    rates = [
        transactional_performance(
            session.jars, nodes, "wide", records=records, size=100
        ).records_per_second
        for _ in range(session.size(3, 1))
    ]
    what = f"{label}: produce 100 B in transactions of 100 ms, ProducerPerformance"
    return Measurement(
        f"{key}.produce", what, "records/s", tuple(rates), at_least(1.2), more_is_better=True
    )


def _chain(session: Session, nodes: Cluster, key: str, label: str) -> Measurement:
    """Sends records one at a time and waits for each at the end of the chain."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    command = [sys.executable, "-c", _TRANSFORMER, nodes.bootstrap, "source", "target"]
    transformer = subprocess.Popen(command)
    reader = Consumer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": "end",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "log_level": 2,
        }
    )
    reader.assign([TopicPartition("target", 0, 0)])
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "linger.ms": 0, "log_level": 2})
    try:
        taken = []
        for number in range(session.size(300, 50)):
            asked = time.monotonic()
            producer.produce("source", f"r{number}")
            producer.poll(0)
            _read_one(reader, f"R{number}")
            if number >= 10:  # the group forms, connections open
                taken.append((time.monotonic() - asked) * 1000)
        producer.flush(_PATIENCE)
    finally:
        transformer.kill()
        transformer.wait()
        reader.close()
    what = f"{label}: consume, transform, produce; from end to end, p50"
    return Measurement(f"{key}.chain", what, "ms", (statistics.median(taken),), at_most(0.5))


def _read_one(reader: Any, wanted: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            assert message.value().decode() == wanted, f"{message.value()!r} is not {wanted}"
            return
    raise AssertionError(f"{wanted} did not arrive within {_PATIENCE:g} s")


# Scanning


def _scan(session: Session, nodes: Cluster, admin: Admin) -> Iterator[Measurement]:
    """Reads a topic of which every tenth transaction was aborted, with both isolation levels."""
    admin.create_topic("scan", partitions=1, replication=1)
    _fill_scan(session, nodes)
    rates: dict[str, list[float]] = {"read_committed": [], "read_uncommitted": []}
    for _ in range(session.size(5, 1)):
        for isolation, found in rates.items():
            command = [sys.executable, "-c", _SCAN, nodes.bootstrap, isolation]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(float(done.stdout))
    committed, all_records = rates.values()
    what = "1 node: read_committed scan, 10 % of the batches aborted"
    yield Measurement(
        "transactions.scan.rate", what, "records/s", tuple(committed), more_is_better=True
    )
    yield Measurement(
        "transactions.scan.share",
        "the same as a share of the rate of a read_uncommitted scan",
        "",
        (statistics.median(committed) / statistics.median(all_records),),
        value_at_least(0.9),
        more_is_better=True,
    )


def _fill_scan(session: Session, nodes: Cluster) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "transactional.id": "scan",
            "batch.num.messages": 1000,
            "linger.ms": 5,
            "log_level": 2,
        }
    )
    producer.init_transactions(_PATIENCE)
    for number in range(session.size(1000, 100)):
        producer.begin_transaction()
        for _ in range(1000):
            producer.produce("scan", b"x" * 100)
        producer.flush(_PATIENCE)
        if number % 10 == 9:
            producer.abort_transaction(_PATIENCE)
        else:
            producer.commit_transaction(_PATIENCE)


# Loading


def _load(session: Session, flavour: Flavour) -> Measurement:
    """Kills the coordinator of many transactional ids, all in one partition, and waits until
    another node serves them."""
    count = session.size(10_000, 1000)
    settings = {"transaction.state.log.num.partitions": "1"}
    times = []
    with _start(session, flavour, "load", 3, settings) as nodes:
        _register_ids(nodes, count)
        for _ in range(session.size(3, 1)):
            coordinator = _coordinator(nodes)
            killed = time.monotonic()
            nodes.kill(coordinator)
            _await_served(nodes, coordinator, f"id-{count - 1}")
            times.append(time.monotonic() - killed)
            nodes.restart(coordinator)
            _await_in_sync(nodes)
    what = f"3 nodes: kill -9 of a coordinator until its {count:,} transactional ids are served"
    return Measurement("transactions.load", what, "s", tuple(times), at_most(0.5))


def _register_ids(nodes: Cluster, count: int) -> None:
    node_id = _coordinator(nodes)
    with plain.Wire(nodes.nodes[node_id].bootstrap) as wire:
        for first in range(0, count, _PIPELINED):
            todo = [f"id-{number}" for number in range(first, min(first + _PIPELINED, count))]
            while todo:  # the coordinator may still be loading
                for each in todo:
                    wire.send(
                        InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=60_000),
                        4,
                    )
                answers = [wire.receive() for _ in todo]
                todo = [
                    each for each, answer in zip(todo, answers, strict=True) if answer.error_code
                ]


def _coordinator(nodes: Cluster) -> int:
    found: int | None = None

    def is_known() -> bool:
        nonlocal found
        for node in nodes.nodes.values():
            try:
                with plain.Wire(node.bootstrap, timeout=10) as wire:
                    asked = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=["id-0"])
                    (answer,) = wire.ask(asked, 4).coordinators
            except (OSError, plain.Closed):
                continue
            if answer.error_code == 0:
                found = answer.node_id
                return True
        return False

    _wait(is_known, "a transaction coordinator")
    assert found is not None
    return found


def _await_served(nodes: Cluster, killed: int, transactional_id: str) -> None:
    """Asks all nodes at once, again and again, until one describes the id."""
    served = threading.Event()
    deadline = time.monotonic() + _PATIENCE

    def ask(address: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        while not served.is_set() and time.monotonic() < deadline:
            try:
                with plain.Wire(address, timeout=10) as wire:
                    while not served.is_set() and time.monotonic() < deadline:
                        (state,) = wire.ask(request, 0).transaction_states
                        if state.error_code == 0:
                            served.set()
                        time.sleep(0.005)
            except (OSError, plain.Closed):
                time.sleep(0.01)

    askers = [
        threading.Thread(target=ask, args=(node.bootstrap,))
        for node_id, node in nodes.nodes.items()
        if node_id != killed
    ]
    for each in askers:
        each.start()
    assert served.wait(_PATIENCE), f"{transactional_id} was not served"
    for each in askers:
        each.join()


def _await_in_sync(nodes: Cluster) -> None:
    with Admin(nodes.bootstrap) as admin:
        _wait(
            lambda: len(admin.describe_topic("__transaction_state").partitions[0].in_sync) == 3,
            "three replicas in sync",
        )


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"no {what} within {_PATIENCE:g} s"
        time.sleep(0.05)
