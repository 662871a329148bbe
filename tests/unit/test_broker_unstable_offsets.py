"""The offsets of ended transactions that a partition keeps."""

from __future__ import annotations

from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.metadata import PartitionState
from headwater.model import TopicPartition
from headwater.storage import UNGUARDED, Log, Origin
from tests.support.logs import NOW, TOPIC_ID, lead, open_log, sent
from tests.unit.test_coordinator_driver import InlineWorkers

TP = TopicPartition("orders", 0)


def leading() -> Partition:
    partition = Partition(TP, TOPIC_ID, open_log(), InlineWorkers(), 0)
    lead(partition, epoch=0, isr=(1,), replicas=(1, 2))
    return partition


def write_transaction(partition: Partition, epoch: int) -> None:
    partition.append(
        sent(7, 0, epoch=epoch, transactional=True),
        acks=ALL_IN_SYNC,
        now_ms=NOW,
        origin=Origin.CLIENT,
        guard=UNGUARDED,
    )
    partition.append_marker(
        7, epoch + 1, commits=True, coordinator_epoch=0, transaction_version=2, now_ms=NOW
    )


def ended_transactions(log: Log) -> int:
    return len(log.producers._unreplicated)


def test_a_leader_whom_nobody_reads_forgets_transactions_that_have_ended() -> None:
    partition = leading()
    for epoch in range(50):
        write_transaction(partition, epoch)
    assert ended_transactions(partition.log) <= 1


def test_a_follower_forgets_transactions_that_have_ended() -> None:
    leader = leading()
    follower = Partition(TP, TOPIC_ID, open_log(), InlineWorkers(), 0)
    follower.become_follower(PartitionState((1, 2), (bytes(16),) * 2, (1, 2), 1, 0, 1))
    for epoch in range(50):
        write_transaction(leader, epoch)
        found = leader.log.read(follower.log.end, bytes_max=2**20, upto=leader.log.end).slice
        assert found is not None
        follower.append_as_follower(
            found.read(), high_watermark=leader.high_watermark, leader_start=0, now_ms=NOW
        )
    assert ended_transactions(follower.log) == 0
    assert follower.last_stable_offset == leader.log.end
