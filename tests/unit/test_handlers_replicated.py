"""Produce and ListOffsets where a partition has more than one replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker.context import Context
from headwater.broker.handlers import list_offsets, produce
from headwater.broker.partition import Partition
from headwater.errors import ErrorCode
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.storage import Log
from tests.support.logs import NOW, TOPIC_ID, TP, append, batch, lead, open_log, settings

ALL = -1
LATEST, EARLIEST = -1, -2
NEVER_MS = 3_600_000


def led(log: Log, *, isr: tuple[int, ...], high_watermark: int = 0) -> Partition:
    workers: Any = None
    partition = Partition(TP, TOPIC_ID, log, workers, high_watermark)
    lead(partition, epoch=2, isr=isr, replicas=(1, 2))
    return partition


async def until(deadline: float, done: Awaitable[None] | None) -> None:
    if done is not None:
        await done


def broker_with(partition: Partition) -> Any:
    return SimpleNamespace(
        partitions=SimpleNamespace(get=lambda topic, index: partition),
        clock=SimpleNamespace(wall_ms=lambda: NOW, monotonic=lambda: 0.0),
        until=until,
    )


def context(version: int) -> Context:
    connection: Any = SimpleNamespace(on_gone={}, on_next=None)
    return Context(connection, version, "test")


# Produce


def test_a_write_that_too_few_replicas_have_in_the_end_is_said_so() -> None:
    async def story() -> int:
        partition = led(open_log(), isr=(1, 2))
        request = ProduceRequest(
            acks=ALL,
            timeout_ms=NEVER_MS,
            topic_data=[
                TopicProduceData(
                    name=TP.topic,
                    partition_data=[
                        PartitionProduceData(index=TP.partition, records=bytes(batch(b"x")))
                    ],
                )
            ],
        )
        handled: Any = produce.handle(broker_with(partition), context(9), request)
        waiting = asyncio.ensure_future(handled)
        await asyncio.sleep(0)
        assert not waiting.done()
        # The follower leaves, the leader alone commits, and before the request runs again more
        # replicas are required.
        lead(partition, epoch=2, isr=(1,), replicas=(1, 2))
        partition.configure(settings(min_insync_replicas=2))
        (result,) = (await waiting).responses[0].partition_responses
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
