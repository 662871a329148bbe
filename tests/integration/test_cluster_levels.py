"""Three nodes at an old level of metadata.version, raised while they run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from harness.clusters import Cluster, Voters
from headwater import NewTopic
from headwater.blocking import Admin, Consumer, Producer
from headwater.client.admin import FeatureUpdate, Partition, UpgradeType

ELR = "eligible.leader.replicas.version"


def send(cluster: Cluster, numbers: range) -> None:
    with Producer(cluster.bootstrap) as producer:
        for number in numbers:
            producer.submit("orders", f"{number}")
        producer.flush(timeout_ms=60_000)


def read(cluster: Cluster, group_id: str, count: int) -> list[int]:
    seen: list[int] = []
    with Consumer(cluster.bootstrap, group_id=group_id, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        while len(seen) < count:
            seen += [int(record.value or b"") for record in consumer.poll(timeout_ms=10_000)]
        consumer.commit()
    return sorted(seen)


def partition(cluster: Cluster, topic: str) -> Partition:
    with Admin(cluster.bootstrap) as admin:
        found = admin.describe_topics([topic])[topic]
    assert not isinstance(found, Exception)
    return found.partitions[0]


def wait(
    cluster: Cluster, is_wanted: Callable[[Partition], bool], topic: str = "orders"
) -> Partition:
    deadline = time.monotonic() + 60
    while not is_wanted(found := partition(cluster, topic)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def set_level(cluster: Cluster, name: str, level: int) -> None:
    kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
    with Admin(cluster.bootstrap) as admin:
        assert admin.update_features({name: FeatureUpdate(level, kind)}) == {name: None}


def test_a_cluster_of_an_old_level_works_and_is_raised_while_it_runs(tmp_path: Path) -> None:
    quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with Cluster(
        tmp_path, voters=Voters.STATIC, release="3.3-IV3", settings=quick
    ).start() as cluster:
        with Admin(cluster.bootstrap) as admin:
            strict = NewTopic("strict", 1, 3, configs={"min.insync.replicas": "3"})
            admin.create_topics([NewTopic("orders", 1, 3), strict])
        send(cluster, range(20))
        assert read(cluster, "before", 20) == list(range(20))
        cluster.kill(1)
        send(cluster, range(20, 40))
        cluster.restart(1)
        wait(cluster, lambda found: len(found.in_sync) == 3)

        set_level(cluster, "metadata.version", 16)
        send(cluster, range(40, 50))
        set_level(cluster, "metadata.version", 30)
        cluster.kill(2)
        send(cluster, range(50, 60))
        cluster.restart(2)
        wait(cluster, lambda found: len(found.in_sync) == 3)
        set_level(cluster, "group.version", 1)
        assert read(cluster, "after", 60) == list(range(60))

        # Below min ISR, a replica that leaves stays eligible, from the moment ELR is on.
        set_level(cluster, ELR, 1)
        cluster.stop(3)
        wait(cluster, lambda found: found.eligible == (3,), topic="strict")
        set_level(cluster, ELR, 0)
        cluster.restart(3)
        found = wait(cluster, lambda found: len(found.in_sync) == 3, topic="strict")
        assert not found.eligible
        wait(cluster, lambda found: len(found.in_sync) == 3)
        cluster.stop()
        segments = {
            (node.log_folder / "orders-0" / f"{0:020}.log").read_bytes()
            for node in cluster.nodes.values()
        }
        assert len(segments) == 1
