"""The folders of a whole cluster change hands: three nodes of Kafka become ours, and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.records import Seen, read_all
from harness.clusters import Cluster, Voters
from harness.nodes import run_java
from headwater import TopicPartition
from headwater.blocking import Admin, Consumer, Producer
from headwater.client.admin.quorum import Quorum
from headwater.client.errors import NotLeader

pytestmark = pytest.mark.timeout(900)

_TOPIC = "travels"
_GROUP = "travellers"
_PARTITIONS = 3
# The nodes find most of their metadata in snapshots, which the others have written.
_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class State:
    """Returns a client's view of the cluster, whichever product serves it."""

    records: list[Seen]
    committed: dict[int, int]
    in_sync: list[set[int]]
    voters: dict[int, str | None]


def _state(cluster: Cluster) -> State:
    deadline = time.monotonic() + _PATIENCE
    with Admin(cluster.bootstrap) as admin:
        while True:
            partitions = admin.describe_topic(_TOPIC).partitions
            in_sync = [set(partition.in_sync) for partition in partitions]
            if all(len(each) == 3 for each in in_sync):
                break
            assert time.monotonic() < deadline, f"in sync are {in_sync}"
            time.sleep(0.2)
        voters = {voter.node_id: voter.directory_id for voter in _quorum(admin, deadline).voters}
        committed = {
            place.partition: offset.offset for place, offset in admin.group_offsets(_GROUP).items()
        }
    return State(read_all(cluster.bootstrap, _TOPIC), committed, in_sync, voters)


def _quorum(admin: Admin, deadline: float) -> Quorum:
    """Asks again while the brokers do not know the next leader yet."""
    while True:
        try:
            return admin.describe_quorum()
        except NotLeader:
            assert time.monotonic() < deadline, "no broker knows who leads the quorum"
            time.sleep(0.2)


def _send(cluster: Cluster, name: str) -> None:
    with Producer(cluster.bootstrap) as producer:
        for number in range(300):
            producer.submit(_TOPIC, key=str(number), value=f"{name} {number}")
        producer.flush()
    with Consumer(cluster.bootstrap, group=_GROUP) as consumer:
        places = [TopicPartition(_TOPIC, number) for number in range(_PARTITIONS)]
        consumer.assign(places)
        consumer.commit(consumer.end_offsets(*places))


@pytest.fixture(params=["kafka first", "headwater first"])
def starts_with_kafka(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "kafka first")


@pytest.fixture(params=[Voters.STATIC, Voters.INITIAL], ids=["static quorum", "dynamic quorum"])
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, jars: Path, *, starts_with_kafka: bool
) -> Iterator[Cluster]:
    kind = jars if starts_with_kafka else None
    made = Cluster(tmp_path, kind, voters=request.param, settings=_SNAPSHOTS)
    with made:
        yield made.start()


def test_three_nodes_change_hands_and_come_back(
    cluster: Cluster, jars: Path, *, starts_with_kafka: bool
) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(_TOPIC, partitions=_PARTITIONS, replication=3)
    _send(cluster, "first")
    before = _state(cluster)
    for is_kafka in (not starts_with_kafka, starts_with_kafka):
        cluster.stop()
        cluster.run_as(jars if is_kafka else None)
        cluster.restart()
        assert _state(cluster) == before
        _send(cluster, "kafka" if is_kafka else "headwater")
        after = _state(cluster)
        assert len(after.records) == len(before.records) + 300
        assert after.records[0] == before.records[0]
        before = after
    cluster.stop()
    for node in cluster.nodes.values():
        folder = node.log_folder / "__cluster_metadata-0"
        snapshots = sorted(folder.glob("*.checkpoint"))
        # Apart from the one that a directory is formatted with.
        assert any(not each.name.startswith(f"{0:020}-") for each in snapshots)
        files = sorted((*folder.glob("*.log"), *snapshots))
        for file in files:
            dumped = run_java(
                jars,
                "org.apache.kafka.tools.DumpLogSegments",
                "--cluster-metadata-decoder",
                "--files",
                str(file),
            ).stdout
            assert "isvalid: true" in dumped
            assert "isvalid: false" not in dumped


@pytest.mark.parametrize("ours", [1, 2], ids=["one of ours", "two of ours"])
def test_nodes_of_both_kinds_stand_in_one_cluster(tmp_path: Path, jars: Path, ours: int) -> None:
    """They vote, replicate and take over from each other."""
    with Cluster(tmp_path, jars) as cluster:
        for node_id in range(1, ours + 1):
            cluster.run_node_as(node_id, None)
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(_TOPIC, partitions=_PARTITIONS, replication=3)
        _send(cluster, "first")
        for node_id in cluster.nodes:
            before = _state(cluster)
            cluster.kill(node_id)
            _send(cluster, f"without {node_id}")
            cluster.restart(node_id)
            after = _state(cluster)
            assert len(after.records) == len(before.records) + 300
            assert after.voters == before.voters
