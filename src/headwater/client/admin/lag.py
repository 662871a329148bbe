"""Consumer lag: the committed offsets of a group beside the logs, in records and in seconds.

The seconds lie between two records: the last one of the log and the first one that the group has
still to read. So a topic to which nobody writes does not fall behind by the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater import _core
from headwater.client.admin.committed import group_offsets
from headwater.client.admin.offsets import OffsetFound, list_offsets
from headwater.client.admin.topics import Topic, describe_topics
from headwater.client.errors import ClientError
from headwater.client.requests.list_offsets import OffsetSpec
from headwater.client.requests.routing import by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

_FETCH_BY_NAME_UNTIL = 12
_LOOK_BYTES = 64 << 10  # enough for a batch of most producers; a larger one comes alone


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in one partition. A field is None if it is unknown: nothing is
    committed, or the partition has no leader."""

    committed: int | None
    end: int | None
    seconds: float | None = None

    @property
    def records(self) -> int | None:
        """The number of offsets between the committed one and the end of the log."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


async def group_lag(
    admin: Admin,
    group_id: str,
    *,
    partitions: Iterable[TopicPartition] = (),
    timeout_ms: int | None = None,
) -> dict[TopicPartition, PartitionLag]:
    """Returns the lag in every partition for which the group has committed an offset, and in
    `partitions` as well, which may have none."""
    committed = {
        where: each.offset
        for where, each in (await group_offsets(admin, group_id, timeout_ms=timeout_ms)).items()
    }
    asked = sorted({*committed, *(TopicPartition(*where) for where in partitions)})
    ends = await _ends(admin, asked, timeout_ms)
    behind = {
        where: (offset, ends[where])
        for where, offset in committed.items()
        if where in ends and offset < ends[where]
    }
    heads = await _timestamps(admin, {at: end - 1 for at, (_, end) in behind.items()}, timeout_ms)
    next_reads = await _timestamps(
        admin, {at: offset for at, (offset, _) in behind.items()}, timeout_ms
    )

    def seconds(where: TopicPartition) -> float | None:
        if where in heads and where in next_reads:
            return max(0, heads[where] - next_reads[where]) / 1000
        return 0.0 if where in committed and where in ends and where not in behind else None

    return {
        where: PartitionLag(committed.get(where), ends.get(where), seconds(where))
        for where in asked
    }


async def _ends(
    admin: Admin, partitions: Sequence[TopicPartition], timeout_ms: int | None
) -> dict[TopicPartition, int]:
    """Returns the ends of the logs. Partitions without a leader are left out and not waited for."""
    topics = await describe_topics(
        admin, {each.topic for each in partitions}, timeout_ms=timeout_ms
    )
    led = {
        TopicPartition(topic.name, each.index)
        for topic in topics.values()
        if isinstance(topic, Topic)
        for each in topic.partitions
        if each.leader is not None
    }
    found = await list_offsets(
        admin,
        {each: OffsetSpec.LATEST for each in partitions if each in led},
        timeout_ms=timeout_ms,
    )
    return {
        where: each.offset
        for where, each in found.items()
        if isinstance(each, OffsetFound) and each.offset is not None
    }


async def _timestamps(
    admin: Admin, at: Mapping[TopicPartition, int], timeout_ms: int | None
) -> dict[TopicPartition, int]:
    """Returns the timestamp of the record at each offset, or of the next one left in the log."""
    router = admin._router

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int | ClientError | None]:
        # A broker sends a batch larger than the limit only as the first of a response, so a
        # partition for which nothing came is asked for again, alone.
        found = await fetch(node, asked, deadline)
        for each in asked:
            if found.get(each) is None:
                found |= await fetch(node, [each], deadline)
        return {**dict.fromkeys(asked), **found}

    async def fetch(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int | None]:
        answer = await router.ask(node, _fetch(asked, at), deadline, at_most=_FETCH_BY_NAME_UNTIL)
        found: dict[TopicPartition, int | None] = {}
        for topic in answer.responses:
            for each in topic.partitions:
                where = TopicPartition(topic.topic, each.partition_index)
                records = bytes(each.records or b"")
                found[where] = None if each.error_code else _timestamp(records, at[where])
        return found

    results = await router.by_leader(at, ask, timeout_ms=timeout_ms)
    return {where: each for where, each in results.items() if isinstance(each, int)}


def _fetch(asked: Sequence[TopicPartition], at: Mapping[TopicPartition, int]) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=at[TopicPartition(topic, number)],
                        partition_max_bytes=_LOOK_BYTES,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(asked).items()
        ],
    )


def _timestamp(batches: bytes, offset: int) -> int | None:
    try:
        records = _core.decode(batches, from_offset=offset)
    except _core.CorruptBatch:
        return None
    return records[0].timestamp if records else None
