"""The replicas of a broker follow the metadata."""

from __future__ import annotations

import pytest

from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io.clock import SystemClock
from headwater.io.memory import MemoryDisk
from headwater.io.workers import ThreadWorkers
from headwater.metadata import Delta, Image
from headwater.observability import Log as Lines
from headwater.protocol.records.metadata_topics import PartitionChangeRecord
from headwater.storage import LogDirs
from tests.support.controllers import CLUSTER, incarnation_of
from tests.support.replicas import RecordedController

TOPIC = "t"


class Desk:
    """The partitions of broker 1 in a cluster of three, and the controller whose log they
    follow."""

    def __init__(self) -> None:
        self.controller = RecordedController({})
        for broker in (1, 2, 3):
            self.controller.join(broker)
        clock = SystemClock()
        config = node_config({"log.dirs": "/d", "node.id": "1"})
        self.log_dirs = LogDirs.open(
            MemoryDisk(),
            ["/d"],
            node_id=1,
            clock=clock,
            new_id=lambda: bytes(16),
            cluster_id=CLUSTER,
        )
        lines = Lines(clock, lambda line: None)
        self.partitions = Partitions(config, self.log_dirs, clock, ThreadWorkers(), lines)
        self.told: list[Partition] = []
        self.partitions.on_role.append(self.told.append)
        self.image, self.applied = Image(), 0

    def create(self, replicas: list[int]) -> None:
        made = self.controller.create(TOPIC, -1, -1, assignments=[(0, replicas)])
        assert not made.error_code

    def follow(self) -> None:
        delta = Delta()
        for record in self.controller.log[self.applied :]:
            self.image.apply(record, delta)
        self.applied = len(self.controller.log)
        self.partitions.follow(self.image, delta)

    def change(self, **changes: object) -> None:
        """A change of the partition that the controller decides for some reason."""
        record = PartitionChangeRecord(
            partition_id=0,
            topic_id=self.image.topics[TOPIC].id,
            **changes,  # type: ignore[arg-type]
        )
        self.controller.log.append(record)

    def partition(self) -> Partition:
        return self.partitions.get(TOPIC, 0)


def test_a_replica_has_no_role_before_its_broker_is_registered() -> None:
    """Older metadata may name it as leader, although it has lost records in a crash."""
    desk = Desk()
    desk.create([1, 2, 3])
    desk.partitions.wait_for_registration(incarnation_of(1, life=2))
    desk.follow()
    assert desk.partition().leader is None
    with pytest.raises(ApiError) as refusal:
        desk.partition().lead(-1)
    assert refusal.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not desk.told
    desk.controller.fence(1)
    desk.controller.join(1, life=2)
    desk.follow()
    follower = desk.partition().follower
    assert follower is not None
    assert follower.leader_id == 2
    assert desk.told == [desk.partition()]


def test_roles_change_with_the_leader() -> None:
    desk = Desk()
    desk.create([1, 2])
    desk.follow()
    first = desk.partition().leader
    assert first is not None
    desk.change(leader=2)
    desk.follow()
    assert desk.partition().leader is None
    assert desk.partition().follower is not None
    desk.change(leader=1)
    desk.follow()
    leader = desk.partition().leader
    assert leader is not None
    assert leader.epoch == first.epoch + 2
    assert len(desk.told) == 3


def test_replicas_may_change_within_an_epoch() -> None:
    desk = Desk()
    desk.create([1, 2])
    desk.follow()
    desk.change(replicas=[1, 2, 3], directories=[bytes(16)] * 3)
    desk.follow()
    leader = desk.partition().leader
    assert leader is not None
    assert leader.replicas == (1, 2, 3)
    assert set(leader.followers) == {2, 3}
    assert len(desk.told) == 1, "nothing changes for those who follow the leader"


def test_the_log_of_a_replica_that_leaves_is_deleted() -> None:
    desk = Desk()
    desk.create([1, 2])
    desk.follow()
    partition = desk.partition()
    desk.change(replicas=[2], isr=[2], directories=[bytes(16)], leader=2)
    desk.follow()
    assert not desk.partitions.has(partition)
    assert len(desk.log_dirs) == 0
    assert len(desk.log_dirs.deletions) == 1


def test_a_replica_that_was_caught_up_joins_when_its_broker_is_unfenced() -> None:
    """No fetch brings news of it while nothing is appended."""
    desk = Desk()
    proposed: list[tuple[int, ...]] = []
    desk.partitions.on_proposal = lambda _, proposal: proposed.append(proposal.isr)
    desk.create([1, 2])
    desk.controller.fence(2)
    desk.follow()
    leader = desk.partition().leader
    assert leader is not None
    assert leader.isr == (1,)
    epoch = desk.image.brokers[2].epoch
    desk.partition().on_follower_fetch(
        2, offset=0, log_start=0, broker_epoch=epoch, clock=leader.followers[2].clock, now=0.0
    )
    assert not proposed
    desk.controller.unfence(2)
    desk.follow()
    assert proposed == [(1, 2)]
