"""Offsets of partitions: where they start and end, what was written when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from headwater.client.admin.results import by_topic, or_raise
from headwater.client.errors import ClientError, error_for
from headwater.model import TopicPartition
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

_NO_REPLICA = -1
_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}


class OffsetSpec(IntEnum):
    """Which offset is meant, besides that of a time."""

    LATEST = -1  # the end: the next record will have it
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # of the record with the latest timestamp
    EARLIEST_LOCAL = -4  # the first that is on the broker's own disk
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


# The first version of ListOffsets that knows them.
_SINCE = {
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}
_ISOLATION_SINCE = 2

Isolation = Literal["read_uncommitted", "read_committed"]
# A spec, a time, or a time as milliseconds since 1970.
OffsetQuestion = OffsetSpec | datetime | int


@dataclass(frozen=True, slots=True)
class OffsetFound:
    """An offset. It is None if there is no such record: all are older than the time, or none is
    there. `timestamp` (milliseconds) is that of the record, where the answer is about one."""

    offset: int | None
    timestamp: int | None = None
    leader_epoch: int | None = None


async def list_offsets(
    admin: Admin,
    partitions: Mapping[TopicPartition, OffsetQuestion],
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetFound | ClientError]:
    """The offset in each partition that belongs to a spec or a time."""
    timestamps = {
        TopicPartition(*where): _timestamp(question) for where, question in partitions.items()
    }
    least = max((_SINCE.get(OffsetSpec(at), 0) for at in timestamps.values() if at < 0), default=0)
    if isolation == "read_committed":
        least = max(least, _ISOLATION_SINCE)

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetFound | ClientError]:
        request = ListOffsetsRequest(
            replica_id=_NO_REPLICA,
            isolation_level=_ISOLATION[isolation],
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=number,
                            timestamp=timestamps[TopicPartition(topic, number)],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(asked).items()
            ],
            timeout_ms=admin.router.left_ms(deadline),
        )
        answer = await admin.router.ask(node, request, deadline, at_least=least)
        return {
            TopicPartition(topic.name, each.partition_index): _found(topic.name, each)
            for topic in answer.topics
            for each in topic.partitions
        }

    return await admin.router.by_leader(timestamps, ask, timeout_ms=timeout_ms)


def _timestamp(question: OffsetQuestion) -> int:
    if isinstance(question, datetime):
        return int(question.timestamp() * 1000)
    return int(question)


def _found(topic: str, each: ListOffsetsPartitionResponse) -> OffsetFound | ClientError:
    if each.error_code:
        return error_for(each.error_code, f"{topic}-{each.partition_index}")
    return OffsetFound(
        offset=None if each.offset < 0 else each.offset,
        timestamp=None if each.timestamp < 0 else each.timestamp,
        leader_epoch=None if each.leader_epoch < 0 else each.leader_epoch,
    )


async def topic_offsets(
    admin: Admin,
    topic: str,
    at: OffsetQuestion = OffsetSpec.LATEST,
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_ms: int | None = None,
) -> dict[int, OffsetFound]:
    """The same for every partition of a topic."""
    from headwater.client.admin.topics import describe_topic

    deadline = admin.router.deadline(timeout_ms)
    about = await describe_topic(admin, topic, timeout_ms=timeout_ms)
    found = or_raise(
        await list_offsets(
            admin,
            {TopicPartition(topic, each.index): at for each in about.partitions},
            isolation=isolation,
            timeout_ms=admin.router.left_ms(deadline),
        )
    )
    return {where.partition: each for where, each in found.items()}
