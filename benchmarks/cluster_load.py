"""Counts elections and fenced brokers of three nodes at full load.

Producers and consumers run unthrottled, with requests of 100 MB among them and a topic that is
compacted all the time, while a node that was killed comes back and recovers a log of 1 GB.
What happened is read from the metadata log, with Kafka's own tool.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Producer

from benchmarks.clients import producer_performance
from benchmarks.rows import Measurement, Session, value_at_most
from harness import kafka_jars
from harness.clusters import Cluster
from harness.nodes import Flavour, Kafka, run_java, wait_until
from headwater.blocking import Admin

_RETURNS = 3  # the node that is killed
_LARGE_BYTES = 100_000_000
_REQUEST_BYTES_MAX = 104_857_600  # the default of socket.request.max.bytes
_KEYS = 5000
_FOREVER = str(10**9)
_PERF = "org.apache.kafka.tools.ProducerPerformance"
_SETTINGS = {
    # Leaders that move back by themselves are not what is counted.
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.backoff.ms": "100",
}


def cluster_load(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    folder = session.folder / f"{flavour.name}-cluster-busy"
    jars = session.jars if isinstance(flavour, Kafka) else None
    with (
        Cluster(folder, jars, settings=_SETTINGS, as_shipped=True).start() as nodes,
        Admin(nodes.bootstrap, request_timeout_ms=120_000) as admin,
    ):
        _create_topics(admin)
        megabytes = session.size(1024, 128)
        producer_performance(session.jars, nodes, "wide", records=megabytes * 1024, size=1000)
        nodes.kill(_RETURNS)
        wait_until(lambda: _are_led_by_others(admin), "the killed node lost its leaderships")
        epoch = admin.describe_quorum().leader_epoch
        before = _Events.of(session, nodes)
        with _load(session, nodes.bootstrap) as acknowledged:
            nodes.restart(_RETURNS)
            time.sleep(session.size(40, 10))  # the load is what is measured
            assert acknowledged.is_set(), "no request of 100 MB was acknowledged"
        # A node that is busy answers late, and the metadata log must be read to its end.
        wait_until(lambda: bool(admin.describe_quorum().leader_id), "the quorum has a leader")
        elections = admin.describe_quorum().leader_epoch - epoch
        after = _Events.of(session, nodes)
    name = "3 nodes at full load, 100 MB requests, compaction, recovery"
    for key, what, count in (
        ("elections", "elections of a controller", elections),
        ("fenced", "brokers fenced", after.fenced - before.fenced),
        ("leaders", "changes of leaders", after.leaders - before.leaders),
    ):
        yield Measurement(
            f"cluster.load.{key}", f"{name}: {what}", "times", (count,), value_at_most(0)
        )


def _create_topics(admin: Admin) -> None:
    admin.create_topic("wide", partitions=6, replication=3)
    admin.create_topic(
        "large", partitions=1, replication=3, configs={"max.message.bytes": _REQUEST_BYTES_MAX}
    )
    compacted = {
        "cleanup.policy": "compact",
        "segment.bytes": 1_048_576,
        "min.cleanable.dirty.ratio": "0.01",
    }
    admin.create_topic("compacted", partitions=3, replication=3, configs=compacted)


def _are_led_by_others(admin: Admin) -> bool:
    topics = admin.describe_topics(("wide", "large", "compacted")).values()
    return all(
        partition.leader not in (None, -1, _RETURNS)
        for topic in topics
        if not isinstance(topic, Exception)
        for partition in topic.partitions
    )


class _Events:
    """Returns the records in the metadata log of the first node so far."""

    def __init__(self, *, fenced: int, leaders: int) -> None:
        self.fenced = fenced
        self.leaders = leaders

    @classmethod
    def of(cls, session: Session, nodes: Cluster) -> _Events:
        folder = nodes.nodes[1].log_folder / "__cluster_metadata-0"
        files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
        arguments = ["--cluster-metadata-decoder", "--skip-record-metadata", "--files", files]
        tool = "org.apache.kafka.tools.DumpLogSegments"
        lines = run_java(session.jars, tool, *arguments).stdout.splitlines()
        changed = [line for line in lines if '"BROKER_REGISTRATION_CHANGE_RECORD"' in line]
        moved = [line for line in lines if '"PARTITION_CHANGE_RECORD"' in line]
        return cls(
            fenced=sum('"fenced":1' in line for line in changed),
            leaders=sum('"leader":' in line for line in moved),
        )


@contextlib.contextmanager
def _load(session: Session, bootstrap: str) -> Iterator[threading.Event]:
    """Keeps producers and a consumer busy; yields an event that is set once a request of 100 MB was
    acknowledged."""
    stop, acknowledged = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=_produce_large, args=(bootstrap, stop, acknowledged)),
        threading.Thread(target=_produce_keyed, args=(bootstrap, stop)),
    ]
    tools = [_producing(session, bootstrap), _consuming(session, bootstrap)]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        for tool in tools:
            tool.kill()
            tool.wait()
        for thread in threads:
            thread.join()


def _producing(session: Session, bootstrap: str) -> subprocess.Popen[bytes]:
    arguments = ["--topic", "wide", "--num-records", _FOREVER, "--record-size", "1000"]
    arguments += ["--throughput", "-1", "--bootstrap-server", bootstrap]
    arguments += ["--command-property", "acks=all"]
    return _tool(session, _PERF, arguments)


def _consuming(session: Session, bootstrap: str) -> subprocess.Popen[bytes]:
    arguments = ["--topic", "wide", "--num-records", _FOREVER, "--bootstrap-server", bootstrap]
    return _tool(session, "org.apache.kafka.tools.ConsumerPerformance", arguments)


def _tool(session: Session, main: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = kafka_jars.java_command(session.jars, main, *arguments, options=("-Xmx512M",))
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _produce_large(bootstrap: str, stop: threading.Event, acknowledged: threading.Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.max.bytes": _REQUEST_BYTES_MAX,
            "queue.buffering.max.kbytes": 4 * _REQUEST_BYTES_MAX // 1024,
            "request.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    value = bytes(_LARGE_BYTES)
    while not stop.is_set():
        producer.produce(
            "large", value, on_delivery=lambda error, _: None if error else acknowledged.set()
        )
        producer.flush(120)


def _produce_keyed(bootstrap: str, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    number = 0
    while not stop.is_set():
        try:
            producer.produce("compacted", bytes(1000), key=str(number % _KEYS))
            number += 1
        except BufferError:
            producer.poll(0.05)
    producer.flush(60)
