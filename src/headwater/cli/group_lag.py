"""How far a group has read: its committed offsets beside the logs, in records and in seconds.

The seconds are those between two records: the last one of the log, and the first one that the group
has still to read. So a topic to which nobody writes does not fall behind by the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater import _core
from headwater.client.admin import OffsetFound, OffsetSpec, Topic
from headwater.client.admin.results import by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.connection import Connection
    from headwater.client.errors import ClientError

_FETCH_BY_NAME_UNTIL = 12
_LOOK_BYTES = 64 << 10  # enough for a batch of most producers; a larger one comes alone


@dataclass(frozen=True, slots=True)
class Lag:
    """One partition of a group. What is None cannot be known: nothing committed, no leader."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    seconds: float | None = None

    @property
    def records(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


def committed_offsets(admin: Admin, group_id: str) -> dict[TopicPartition, int]:
    return {where: each.offset for where, each in admin.group_offsets(group_id).items()}


def topic_partitions(admin: Admin, topics: Collection[str]) -> dict[TopicPartition, int | None]:
    """Every partition of these topics with its leader; topics that do not exist are left out."""
    return {
        TopicPartition(about.name, each.index): each.leader
        for about in admin.describe_topics(topics).values()
        if isinstance(about, Topic)
        for each in about.partitions
    }


def offsets_at(
    admin: Admin, leaders: Mapping[TopicPartition, int | None], at: int
) -> dict[TopicPartition, int]:
    """The offset that belongs to a time (or an `OffsetSpec`) in each partition that can be asked;
    -1 if all records are older. Those without a leader are not waited for."""
    led = [where for where, leader in leaders.items() if leader is not None]
    return {
        where: -1 if each.offset is None else each.offset
        for where, each in admin.list_offsets(dict.fromkeys(led, at)).items()
        if isinstance(each, OffsetFound)
    }


def lags(
    admin: Admin, committed: Mapping[TopicPartition, int], also: Iterable[TopicPartition]
) -> list[Lag]:
    """Of each partition that has an offset, and of those that a member reads without one."""
    partitions = sorted({*committed, *also})
    all_leaders = topic_partitions(admin, {each.topic for each in partitions})
    leaders = {each: all_leaders[each] for each in partitions if each in all_leaders}
    ends = offsets_at(admin, leaders, OffsetSpec.LATEST)
    behind = {
        each: (offset, ends[each])
        for each, offset in committed.items()
        if each in ends and offset < ends[each]
    }
    heads = _timestamps(admin, {each: end - 1 for each, (_, end) in behind.items()})
    next_reads = _timestamps(admin, {each: at for each, (at, _) in behind.items()})
    result = []
    for each in partitions:
        seconds = None
        if each in heads and each in next_reads:
            seconds = max(0, heads[each] - next_reads[each]) / 1000
        elif each in committed and each in ends and each not in behind:
            seconds = 0.0
        result.append(Lag(each, committed.get(each), ends.get(each), seconds))
    return result


def _timestamps(admin: Admin, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamp of the record at each offset, or of the next one that is left in the log."""
    router = admin.asynchronous.router

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int | ClientError | None]:
        # A node sends a batch that is larger than was asked for only as the first of an answer, so
        # what came without one is asked for again, alone.
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

    results = admin.run(lambda: router.by_leader(at, ask))
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
