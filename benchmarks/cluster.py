"""Clusters of three nodes: replicated throughput, latency, failover, memory, many partitions.

All nodes are brokers and controllers with their defaults, on one disk. Producers are Kafka's own
tools.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from benchmarks.clients import producer_performance
from benchmarks.rows import Measurement, Session, at_least, at_most
from harness import kafka_jars
from harness.clusters import Cluster
from harness.nodes import Flavour, Kafka, wait_until
from headwater import TopicExists
from headwater.blocking import Admin
from headwater.model import TopicPartition

_SIZE = 1000
_MEGABYTES = "cluster.produce.kafka"  # what Kafka's three nodes took, for the fixed rate
_PER_SECOND = 200
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
            for _ in range(session.samples(3, 1))
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
                session.jars,
                nodes,
                "wide",
                records=half * 15,
                size=_SIZE,
                per_second=half,
                warm_up=half * 5,
            ).p99_ms
            for _ in range(session.samples(3, 1))
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
        if session.wants_below("cluster.kill") or session.wants_below("cluster.stop"):
            yield from _failover(session, nodes, admin)


def _start(session: Session, flavour: Flavour, name: str) -> Cluster:
    folder = session.folder / f"{flavour.name}-cluster-{name}"
    jars = session.jars if isinstance(flavour, Kafka) else None
    return Cluster(folder, jars, as_shipped=True).start()


class _Sender:
    """Kafka's VerifiableProducer, with a record every few milliseconds; notes when each of them was
    acknowledged."""

    def __init__(self, session: Session, bootstrap: str, topic: str) -> None:
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--acks", "-1"]
        arguments += ["--throughput", str(_PER_SECOND)]
        self._process = subprocess.Popen(
            kafka_jars.java_command(
                session.jars, "org.apache.kafka.tools.VerifiableProducer", *arguments
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.acknowledged: list[float] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "producer_send_success" in line:
                self.acknowledged.append(time.monotonic())

    def await_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + _PATIENCE
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"nothing was acknowledged for {_PATIENCE:g} s"
            time.sleep(0.005)

    def longest_gap(self, since: float) -> tuple[float, float]:
        """Returns when the longest time without an acknowledgement began and ended. What was in
        flight may still be acknowledged, so the first one does not end it."""
        self.await_more(3 * _PER_SECOND // 2)
        times = [since, *(each for each in self.acknowledged if each >= since)]
        return max(pairwise(times), key=lambda gap: gap[1] - gap[0])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(_PATIENCE)
        self._thread.join(_PATIENCE)


def _failover(session: Session, nodes: Cluster, admin: Admin) -> Iterator[Measurement]:
    """Kills and stops leaders, in turn ones that are the active controller as well."""
    for node_id in nodes.nodes:
        others = [other for other in nodes.nodes if other != node_id]
        admin.create_topic(_led_by(node_id), assignments={0: [node_id, *others]})
    kills: dict[bool, list[float]] = {False: [], True: []}
    for number in range(session.size(10, 2)):
        is_controller = number % 2 == 1
        gap = _gap(session, nodes, admin, is_controller, nodes.kill)
        kills[is_controller].append(gap)
    stops = [
        _gap(session, nodes, admin, number % 2 == 1, nodes.stop)
        for number in range(session.size(5, 2))
    ]
    for is_controller, name in ((False, "kill -9 of a leader"), (True, "and active controller")):
        yield Measurement(
            "cluster.kill.controller" if is_controller else "cluster.kill",
            f"3 nodes: {name} to the next acknowledgement, the worst",
            "s",
            (max(kills[is_controller]),),
            at_most(0.2),
        )
    yield Measurement(
        "cluster.stop",
        "3 nodes: gap at a controlled stop, the worst",
        "s",
        (max(stops),),
        at_most(0.2),
    )


def _led_by(node_id: int) -> str:
    return f"led-by-{node_id}"


def _gap(
    session: Session,
    nodes: Cluster,
    admin: Admin,
    is_controller: bool,
    end: Callable[[int], None],
) -> float:
    """Ends a node that leads the partition that a producer writes to; returns how long the producer
    waited. Then the node is started again."""
    controller = admin.describe_quorum().leader_id
    node_id = next(each for each in nodes.nodes if (each == controller) is is_controller)
    topic = _led_by(node_id)
    _wait_in_sync(admin, topic)
    admin.elect_leaders([TopicPartition(topic, 0)])
    sender = _Sender(session, nodes.bootstrap, topic)
    try:
        sender.await_more(2 * _PER_SECOND)
        moment = time.monotonic()
        end(node_id)
        began, ended = sender.longest_gap(moment)
        nodes.restart(node_id)
        _wait_in_sync(admin, topic)
    finally:
        sender.stop()
    return ended - began


def _wait_in_sync(admin: Admin, topic: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while len(admin.describe_topic(topic).partitions[0].in_sync) < 3:
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
                    # After an election a request is repeated, and may find what it has created.
                    with contextlib.suppress(TopicExists):
                        admin.create_topic(f"t{first}", partitions=size, replication=factor)
                _wait_led(admin, count)
                _wait_for_logs(nodes, count * factor)
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


def _wait_for_logs(nodes: Cluster, count: int) -> None:
    """Waits until all replicas have their folders: a partition has a leader before that."""
    wait_until(
        lambda: (
            sum(len(list(each.log_folder.glob("t*-*"))) for each in nodes.nodes.values()) >= count
        ),
        f"{count} replicas have logs",
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
