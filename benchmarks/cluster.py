"""Clusters of three nodes: replicated throughput, latency, failover, memory, many partitions.

All nodes are brokers and controllers with their defaults, on one disk. Producers are Kafka's own
tool and, where the moment of an acknowledgement counts, librdkafka.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.clients import producer_performance
from benchmarks.rows import Measurement, Session, at_least, at_most
from harness.clusters import Cluster
from harness.nodes import Flavour, Kafka
from headwater.blocking import Admin
from headwater.model import TopicPartition

_SIZE = 1000
_MEGABYTES = "cluster.produce.kafka"  # what Kafka's three nodes took, for the fixed rate
_PAUSE_SECONDS = 0.005
_PATIENCE = 60.0


def cluster(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Measures a fresh cluster under load, then kills and stops its nodes."""
    with _start(session, flavour, "load") as nodes, Admin(nodes.bootstrap) as admin:
        admin.create_topic("wide", partitions=6, replication=3)
        records = session.size(300_000, 50_000)
        producer_performance(session.jars, nodes, "wide", records=records // 4, size=_SIZE)
        rates = [
            producer_performance(
                session.jars, nodes, "wide", records=records, size=_SIZE
            ).megabytes_per_second
            for _ in range(session.size(3, 1))
        ]
        produced = Measurement(
            "cluster.produce",
            "3 nodes: produce 1 KB, RF 3, acks=all",
            "MB/s",
            tuple(rates),
            at_least(3),
            more_is_better=True,
        )
        yield produced
        if isinstance(flavour, Kafka):
            session.facts[_MEGABYTES] = produced.value
        half = int(session.facts.get(_MEGABYTES, produced.value) * 1e6 / _SIZE / 2)
        fixed = [
            producer_performance(
                session.jars, nodes, "wide", records=half * 10, size=_SIZE, per_second=half
            ).p99_ms
            for _ in range(session.size(3, 1))
        ]
        yield Measurement(
            "cluster.p99",
            "3 nodes: p99 at half of Kafka's rate",
            "ms",
            tuple(fixed),
            at_most(0.5),
        )
        resident = sum(node.resident_bytes() for node in nodes.nodes.values()) / 1e6
        yield Measurement(
            "cluster.memory", "3 nodes: resident memory, sum", "MB", (resident,), at_most(0.15)
        )
        yield from _failover(session, nodes, admin)


def _start(session: Session, flavour: Flavour, name: str) -> Cluster:
    folder = session.folder / f"{flavour.name}-cluster-{name}"
    jars = session.jars if isinstance(flavour, Kafka) else None
    return Cluster(folder, jars, heap="1g").start()


class _Sender:
    """Sends a record every few milliseconds and notes when each was sent and acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.acknowledged: list[tuple[float, float]] = []  # sent, acknowledged
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "linger.ms": 0,
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        while not self._stop.is_set():
            sent = time.monotonic()

            def done(error: object, _: object, sent: float = sent) -> None:
                if error is None:
                    self.acknowledged.append((sent, time.monotonic()))

            producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=done)
            producer.poll(_PAUSE_SECONDS)
        producer.flush(_PATIENCE)

    def first_after(self, moment: float) -> float:
        """Returns how long after a moment a record that was sent later was acknowledged."""
        deadline = moment + _PATIENCE
        while time.monotonic() < deadline:
            for sent, done in self.acknowledged[-200:]:
                if sent > moment:
                    return done - moment
            time.sleep(0.005)
        raise AssertionError(f"nothing was acknowledged within {_PATIENCE:g} s")

    def longest_gap(self, since: float) -> float:
        times = sorted(done for _, done in self.acknowledged if done >= since)
        return max(later - earlier for earlier, later in pairwise(times))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_PATIENCE)


def _failover(session: Session, nodes: Cluster, admin: Admin) -> Iterator[Measurement]:
    admin.create_topic("one", partitions=1, replication=3)
    sender = _Sender(nodes.bootstrap, "one")
    kills: dict[bool, list[float]] = {False: [], True: []}
    stops: list[float] = []
    rounds = session.size(5, 1)
    sender.first_after(time.monotonic())
    while len(kills[False]) + len(kills[True]) < rounds or not all(kills.values()):
        leader, is_controller = _leader(admin)
        if len(kills[is_controller]) >= rounds:
            break
        moment = time.monotonic()
        nodes.kill(leader)
        kills[is_controller].append(sender.first_after(moment))
        nodes.restart(leader)
        _wait_in_sync(admin)
        admin.elect_leaders(
            [TopicPartition("one", 0)]
        )  # the preferred one, so that all of them have their turn
    for _ in range(session.size(3, 1)):
        leader, _ = _leader(admin)
        moment = time.monotonic()
        nodes.stop(leader)
        sender.first_after(time.monotonic())
        stops.append(sender.longest_gap(moment))
        nodes.restart(leader)
        _wait_in_sync(admin)
    sender.stop()
    for is_controller, name in ((False, "kill -9 of a leader"), (True, "and active controller")):
        if kills[is_controller]:
            key = "cluster.kill.controller" if is_controller else "cluster.kill"
            yield Measurement(
                key,
                f"3 nodes: {name} to the next acknowledgement, the worst",
                "s",
                (max(kills[is_controller]),),
                at_most(0.2),
            )
    yield Measurement(
        "cluster.stop", "3 nodes: gap at a controlled stop", "s", (max(stops),), at_most(0.2)
    )


def _leader(admin: Admin) -> tuple[int, bool]:
    topic = admin.describe_topic("one")
    leader = topic.partitions[0].leader
    assert leader is not None, "the topic has no leader"
    return leader, admin.describe_quorum().leader_id == leader


def _wait_in_sync(admin: Admin) -> None:
    deadline = time.monotonic() + _PATIENCE
    while len(admin.describe_topic("one").partitions[0].in_sync) < 3:
        assert time.monotonic() < deadline, "the replicas do not come into sync"
        time.sleep(0.05)


def cluster_partitions(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Many partitions on three nodes: creation, restart of all, failover of a node's leaders."""
    for factor, count in ((1, session.size(10_000, 300)), (3, session.size(3000, 100))):
        name = f"3 nodes, {count} partitions, RF {factor}"
        key = f"cluster.partitions.{factor}"
        with _start(session, flavour, f"partitions-{factor}") as nodes:
            with Admin(nodes.bootstrap, request_timeout_ms=120_000) as admin:
                began = time.monotonic()
                for first in range(0, count, 1000):
                    size = min(1000, count - first)
                    admin.create_topic(f"t{first}", partitions=size, replication=factor)
                _wait_led(admin, count)
                yield Measurement(
                    f"{key}.create", f"{name}: create", "s", (time.monotonic() - began,)
                )
                resident = sum(node.resident_bytes() for node in nodes.nodes.values()) / 1e6
                yield Measurement(
                    f"{key}.memory", f"{name}: memory", "MB", (resident,), at_most(0.5)
                )
                if factor > 1:
                    moment = time.monotonic()
                    nodes.kill(3)
                    _wait_led(admin, count, without=3)
                    yield Measurement(
                        f"{key}.failover",
                        f"{name}: failover of a node's leaders",
                        "s",
                        (time.monotonic() - moment,),
                        at_most(0.5),
                    )
                    nodes.restart(3)
            nodes.stop()
            began = time.monotonic()
            nodes.restart()
            with Admin(nodes.bootstrap, request_timeout_ms=120_000) as admin:
                _wait_led(admin, count)
            yield Measurement(
                f"{key}.start", f"{name}: start", "s", (time.monotonic() - began,), at_most(0.5)
            )


def _wait_led(admin: Admin, count: int, *, without: int | None = None) -> None:
    deadline = time.monotonic() + 3 * _PATIENCE
    while True:
        topics = admin.describe_topics(each.name for each in admin.list_topics())
        leaders = [
            partition.leader
            for topic in topics.values()
            if not isinstance(topic, Exception) and topic.name.startswith("t")
            for partition in topic.partitions
        ]
        if len(leaders) >= count and not {None, -1, without} & set(leaders):
            return
        assert time.monotonic() < deadline, f"{len(leaders)} of {count} partitions have a leader"
        time.sleep(0.1)
