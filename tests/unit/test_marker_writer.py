"""Markers of transactions, in the partitions that a broker leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from headwater.broker.context import Context
from headwater.broker.coordinators.groups import OFFSETS_TOPIC, GroupCoordinator
from headwater.broker.handlers import write_txn_markers
from headwater.broker.marker_writer import MarkerWriter
from headwater.broker.partition import Partition
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.metadata import Delta, Image
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater.replication.leader import FetchClock
from headwater.storage import UNGUARDED, Origin
from tests.support.logs import NOW, TOPIC_ID, lead, open_log, sent, settings
from tests.unit.test_coordinator_driver import InlineWorkers
from tests.unit.test_group_coordinator import topic

ORDERS, PAID = TopicPartition("orders", 0), TopicPartition("paid", 0)
GROUPS = TopicPartition(OFFSETS_TOPIC, 0)
NEVER_MS = 3_600_000


class Bench:
    """A broker that leads two partitions, and one of the groups' topic."""

    def __init__(self, *, timeout_ms: int = NEVER_MS) -> None:
        self.host = replace(Host.in_memory(), workers=InlineWorkers())
        self.parts = {tp: self._led(tp) for tp in (ORDERS, PAID, GROUPS)}
        partitions: Any = SimpleNamespace(get=self._get)
        lines = Lines(self.host.clock, lambda line: None)
        self.groups = GroupCoordinator(node_config({}), self.host, partitions, lines)
        self.broker: Any = SimpleNamespace(
            authorizer=None,
            marker_writer=MarkerWriter(
                partitions, self.groups, self.host.clock, timeout_ms=timeout_ms
            ),
        )

    def _led(self, tp: TopicPartition) -> Partition:
        log = open_log(config=settings(cleanup_policy="compact"))
        partition = Partition(tp, TOPIC_ID, log, InlineWorkers(), high_watermark=0)
        lead(partition, epoch=1, isr=(1,), replicas=(1, 2))
        return partition

    def _get(self, name: str, index: int) -> Partition:
        try:
            return self.parts[TopicPartition(name, index)]
        except KeyError:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None

    def create_groups_topic(self) -> None:
        image, delta = Image(), Delta()
        for record in topic(OFFSETS_TOPIC, TOPIC_ID):
            image.apply(record, delta)
        self.groups.follow(image, delta)

    def begin(self, tp: TopicPartition, producer_id: int = 7, epoch: int = 0) -> None:
        self.parts[tp].append(
            sent(producer_id, 0, epoch=epoch, transactional=True),
            acks=1,
            now_ms=NOW,
            origin=Origin.CLIENT,
            guard=UNGUARDED,
        )

    def write(self, *markers: WritableTxnMarker) -> Any:
        request = WriteTxnMarkersRequest(markers=list(markers))
        context = Context(None, 2, "broker")  # type: ignore[arg-type]
        return write_txn_markers.handle(self.broker, context, request)


def marker(*partitions: TopicPartition, producer_id: int = 7, epoch: int = 1) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=[index])
            for name, index in partitions
        ],
        coordinator_epoch=0,
        transaction_version=2,
    )


def codes(response: WriteTxnMarkersResponse) -> dict[int, dict[str, ErrorCode]]:
    return {
        result.producer_id: {
            topic.name: ErrorCode(partition.error_code)
            for topic in result.topics
            for partition in topic.partitions
        }
        for result in response.markers
    }


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_markers_are_written_at_once_where_nobody_else_is_in_sync() -> None:
    bench = Bench()
    bench.begin(ORDERS)
    bench.begin(PAID)
    response = bench.write(marker(ORDERS, PAID))
    assert codes(response) == {7: {"orders": ErrorCode.NONE, "paid": ErrorCode.NONE}}
    assert [bench.parts[tp].last_stable_offset for tp in (ORDERS, PAID)] == [2, 2]


def test_each_partition_has_its_own_outcome() -> None:
    bench = Bench()
    bench.begin(ORDERS)
    bench.begin(PAID, epoch=1)
    elsewhere = TopicPartition("elsewhere", 0)
    response = bench.write(marker(ORDERS, PAID, elsewhere), marker(PAID, producer_id=8))
    assert codes(response) == {
        7: {
            "orders": ErrorCode.NONE,
            "paid": ErrorCode.INVALID_PRODUCER_EPOCH,
            "elsewhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
        8: {"paid": ErrorCode.NONE},
    }
    assert bench.parts[PAID].last_stable_offset == 0


def test_a_request_without_markers_is_answered() -> None:
    assert Bench().write() == WriteTxnMarkersResponse(markers=[])


def test_the_answer_waits_for_all_in_sync_replicas() -> None:
    async def story() -> None:
        bench = Bench()
        bench.begin(PAID)
        lead(bench.parts[PAID], epoch=1, isr=(1, 2), replicas=(1, 2))
        answer = bench.write(marker(ORDERS, PAID))
        assert not answer.is_answered
        bench.parts[PAID].on_follower_fetch(
            2, offset=2, log_start=0, broker_epoch=2, clock=FetchClock(), now=0.0
        )
        assert codes(await answer) == {7: {"orders": ErrorCode.NONE, "paid": ErrorCode.NONE}}

    run(story)


def test_a_marker_that_is_not_replicated_in_time_is_said_so() -> None:
    async def story() -> None:
        bench = Bench(timeout_ms=5)
        lead(bench.parts[PAID], epoch=1, isr=(1, 2), replicas=(1, 2))
        answer = await bench.write(marker(PAID))
        assert codes(answer) == {7: {"paid": ErrorCode.REQUEST_TIMED_OUT}}

    run(story)


def test_a_leader_that_resigns_says_so() -> None:
    async def story() -> None:
        bench = Bench()
        lead(bench.parts[PAID], epoch=1, isr=(1, 2), replicas=(1, 2))
        answer = bench.write(marker(PAID))
        bench.parts[PAID].close()
        assert codes(await answer) == {7: {"paid": ErrorCode.NOT_LEADER_OR_FOLLOWER}}

    run(story)


def test_too_few_in_sync_replicas_write_no_marker() -> None:
    bench = Bench()
    bench.parts[PAID].configure(settings(min_insync_replicas=2))
    assert codes(bench.write(marker(PAID))) == {7: {"paid": ErrorCode.NOT_ENOUGH_REPLICAS}}
    assert bench.parts[PAID].log.end == 0


def test_markers_of_the_groups_topic_wait_until_its_coordinator_is_ready() -> None:
    async def story() -> None:
        bench = Bench()
        groups = {7: {OFFSETS_TOPIC: ErrorCode.NOT_LEADER_OR_FOLLOWER}}
        assert codes(bench.write(marker(GROUPS))) == groups  # not coordinated here
        bench.create_groups_topic()
        assert codes(bench.write(marker(GROUPS))) == groups  # being loaded
        await asyncio.sleep(0)
        assert codes(bench.write(marker(GROUPS))) == {7: {OFFSETS_TOPIC: ErrorCode.NONE}}
        assert bench.parts[GROUPS].log.end == 1
        bench.groups.stop()

    run(story)


def test_markers_of_the_groups_topic_wait_for_its_replicas() -> None:
    async def story() -> None:
        bench = Bench()
        bench.create_groups_topic()
        await asyncio.sleep(0)
        lead(bench.parts[GROUPS], epoch=1, isr=(1, 2), replicas=(1, 2))
        answer = bench.write(marker(GROUPS))
        lead(bench.parts[GROUPS], epoch=1, isr=(1,), replicas=(1, 2))
        assert codes(await answer) == {7: {OFFSETS_TOPIC: ErrorCode.NONE}}
        bench.groups.stop()

    run(story)
