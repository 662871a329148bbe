"""Three nodes at full load stay a cluster: no election starts, no broker is fenced.

Votes, heartbeats and fetches of the metadata share the loop with clients' requests. Large requests,
compaction, many records at once and the logs of a node that was killed, which it checks while it
votes, must not keep them waiting until somebody loses patience.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer

from harness.clusters import Cluster
from headwater.blocking import Admin

SECONDS = 12.0
LARGE_BYTES = 100_000_000
REQUEST_BYTES_MAX = 104_857_600  # the default of socket.request.max.bytes


def _producing(bootstrap: str, topic: str, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    number = 0
    while not stop.is_set():
        try:
            producer.produce(topic, b"v" * 1000, key=str(number % 5000))
            number += 1
        except BufferError:
            producer.poll(0.05)
    producer.flush(60)


def _producing_large(bootstrap: str, stop: threading.Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.max.bytes": REQUEST_BYTES_MAX,
            "request.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    while not stop.is_set():
        producer.produce("large", bytes(LARGE_BYTES))
        assert producer.flush(120) == 0


def _consuming(bootstrap: str, stop: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["wide", "compacted"])
    while not stop.is_set():
        try:
            consumer.consume(1000, timeout=0.5)
        except KafkaException:  # a request that timed out on a busy machine
            continue
    consumer.close()


def test_full_load_starts_no_election_and_fences_nobody(tmp_path: Path) -> None:
    with Cluster(tmp_path).start() as cluster, Admin(cluster.bootstrap) as admin:
        admin.create_topic("wide", partitions=6, replication=3)
        admin.create_topic(
            "large", partitions=1, replication=3, configs={"max.message.bytes": REQUEST_BYTES_MAX}
        )
        admin.create_topic(
            "compacted",
            partitions=3,
            replication=3,
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": 1_048_576,
                "min.cleanable.dirty.ratio": "0.01",
            },
        )
        before = admin.describe_quorum()
        stop = threading.Event()
        works: list[Callable[[], None]] = [
            lambda: _producing(cluster.bootstrap, "wide", stop),
            lambda: _producing(cluster.bootstrap, "compacted", stop),
            lambda: _producing_large(cluster.bootstrap, stop),
            lambda: _consuming(cluster.bootstrap, stop),
        ]
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS / 2)  # the load is the test; nothing is waited for
        killed = next(node_id for node_id in cluster.nodes if node_id != before.leader_id)
        cluster.kill(killed)
        cluster.restart(killed)
        time.sleep(SECONDS / 2)
        stop.set()
        for thread in threads:
            thread.join(150)
            assert not thread.is_alive(), "a client does not come to its end"
        after = admin.describe_quorum()
        assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
        fenced: list[str] = []
        for node_id, node in cluster.nodes.items():
            printed = node.output.read_text()
            for line in ("has fenced this broker", "no longer the active controller", "Traceback"):
                assert line not in printed, f"node {node_id}:\n{printed}"
            fenced += re.findall(r"broker \d+ is fenced", printed)
        assert fenced == [f"broker {killed} is fenced"]
