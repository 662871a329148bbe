"""Produce and ListOffsets where a partition has more than one replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker.context import Context
from headwater.broker.handlers import list_offsets, produce
from headwater.broker.partition import Partition
from headwater.errors import ErrorCode
from headwater.metadata import PartitionState
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.replication.follower import Cut
from headwater.replication.leader import FetchClock
from headwater.storage import Log
from tests.support.logs import NOW, TOPIC_ID, TP, append, batch, lead, open_log, settings

ALL = -1
LATEST, EARLIEST = -1, -2
NEVER_MS = 3_600_000


class InlineWorkers:
    async def run(self, work: Callable[[], Any]) -> Any:
        return work()


def led(
    log: Log, *, isr: tuple[int, ...], high_watermark: int = 0, workers: Any = None
) -> Partition:
    partition = Partition(TP, TOPIC_ID, log, workers, high_watermark)
    lead(partition, epoch=2, isr=isr, replicas=(1, 2))
    return partition


async def until(deadline: float, done: Awaitable[None] | None) -> None:
    if done is not None:
        await done


def broker_with(partition: Partition) -> Any:
    return SimpleNamespace(
        authorizer=None,
        partitions=SimpleNamespace(get=lambda topic, index: partition),
        clock=SimpleNamespace(wall_ms=lambda: NOW, monotonic=lambda: 0.0),
        until=until,
    )


def context(version: int) -> Context:
    connection: Any = SimpleNamespace(on_gone={}, on_next=None)
    return Context(connection, version, "test")


# Produce


def produced(partition: Partition, *, timeout_ms: int = NEVER_MS, version: int = 9) -> Any:
    """The pending answer to a batch for all replicas."""
    request = ProduceRequest(
        acks=ALL,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=TP.topic,
                partition_data=[
                    PartitionProduceData(index=TP.partition, records=bytes(batch(b"x")))
                ],
            )
        ],
    )
    handled: Any = produce.handle(broker_with(partition), context(version), request)
    return asyncio.ensure_future(handled)


def result_of(answer: ProduceResponse) -> PartitionProduceResponse:
    (result,) = answer.responses[0].partition_responses
    return result


def test_an_append_is_acknowledged_when_all_in_sync_replicas_have_it() -> None:
    async def story() -> None:
        partition = led(open_log(), isr=(1, 2))
        first, second = produced(partition), produced(partition)
        leader = partition.leader
        assert leader is not None
        partition.on_follower_fetch(
            2, offset=1, log_start=0, broker_epoch=2, clock=FetchClock(), now=0.0
        )
        await asyncio.sleep(0)
        assert result_of(first.result()).error_code == 0
        assert not second.done()
        partition.on_follower_fetch(
            2, offset=2, log_start=0, broker_epoch=2, clock=FetchClock(), now=0.0
        )
        assert result_of(await second).base_offset == 1

    asyncio.run(story())


def test_an_append_that_is_not_replicated_in_time_is_said_so() -> None:
    async def story() -> None:
        partition = led(open_log(), isr=(1, 2))
        result = result_of(await produced(partition, timeout_ms=5))
        assert (result.error_code, result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert not partition._waiting

    asyncio.run(story())


def test_waiting_producers_hear_of_another_leader() -> None:
    async def story() -> None:
        partition = led(open_log(), isr=(1, 2))
        waiting = produced(partition)
        partition.become_follower(
            PartitionState((1, 2), (bytes(16),) * 2, (1, 2), 2, 3, partition.partition_epoch + 1)
        )
        assert result_of(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(story())


class HeldWorkers:
    """Works when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def run(self, work: Callable[[], Any]) -> Any:
        await self.go.wait()
        return work()


@pytest.mark.parametrize("is_known_first", [True, False])
def test_an_append_is_not_acknowledged_for_what_another_leader_wrote_in_its_place(
    is_known_first: bool,
) -> None:
    """While the append is flushed, the broker becomes a follower, and its log is cut."""

    async def story() -> None:
        workers = HeldWorkers()
        log = open_log(config=settings(flush_messages=1))
        partition = led(log, isr=(1, 2), workers=workers)
        waiting = produced(partition)
        await asyncio.sleep(0)
        partition.become_follower(
            PartitionState((1, 2), (bytes(16),) * 2, (1, 2), 2, 3, partition.partition_epoch + 1)
        )
        job = partition.begin_cut(Cut(0))
        assert job is not None
        job.run()
        partition.cut_ended(job)
        partition.append_as_follower(
            bytes(batch(b"of the next leader")),
            high_watermark=1 if is_known_first else 0,
            leader_start=0,
            now_ms=NOW,
        )
        workers.go.set()
        for _ in range(5):  # the flush ends, and the request goes on
            await asyncio.sleep(0)
        partition.append_as_follower(b"", high_watermark=1, leader_start=0, now_ms=NOW)
        assert partition.high_watermark == 1
        assert result_of(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(story())


def test_waiting_producers_stay_when_the_same_leader_has_a_new_epoch() -> None:
    async def story() -> None:
        partition = led(open_log(), isr=(1, 2))
        waiting = produced(partition)
        lead(partition, epoch=3, isr=(1, 2), replicas=(1, 2))
        await asyncio.sleep(0)
        assert not waiting.done()
        partition.on_follower_fetch(
            2, offset=1, log_start=0, broker_epoch=2, clock=FetchClock(), now=0.0
        )
        assert result_of(await waiting).error_code == 0

    asyncio.run(story())


def test_a_write_that_too_few_replicas_have_in_the_end_is_said_so() -> None:
    async def story() -> int:
        log = open_log(config=settings(flush_messages=1))
        partition = led(log, isr=(1, 2), workers=InlineWorkers())
        waiting = produced(partition)
        # While it is flushed, the other replica leaves, the leader alone commits, and then more
        # replicas are required.
        lead(partition, epoch=2, isr=(1,), replicas=(1, 2))
        partition.configure(settings(min_insync_replicas=2, flush_messages=1))
        result = result_of(await waiting)
        assert partition.log.end == 1
        return int(result.error_code)

    assert asyncio.run(story()) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# ListOffsets


def listed(partition: Partition, timestamp: int, version: int = 7) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=TP.partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TP.topic, partitions=[asked])]
    )
    answer = list_offsets.handle(broker_with(partition), context(version), request)
    return answer.topics[0].partitions[0]


def a_new_leader(high_watermark: int) -> Partition:
    log = open_log()
    for number in range(4):
        append(log, batch(b"x", timestamp=NOW + number), epoch=1)
    return led(log, isr=(1, 2), high_watermark=high_watermark)


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
def test_a_new_leader_whose_high_watermark_lags_does_not_know_the_end(
    version: int, code: ErrorCode
) -> None:
    """Offsets must not go back after an election (KIP-207)."""
    partition = a_new_leader(high_watermark=2)
    assert listed(partition, LATEST, version).error_code == code
    assert listed(partition, NOW + 3, version).error_code == code
    assert listed(partition, EARLIEST, version).error_code == 0
    known = listed(partition, NOW + 1, version)
    assert (known.error_code, known.offset) == (0, 1)


def test_a_leader_that_has_caught_up_knows_the_end() -> None:
    assert listed(a_new_leader(high_watermark=4), LATEST).offset == 4
