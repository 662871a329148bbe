"""How far a group has read: its committed offsets beside the logs, in records and in seconds.

The seconds are those between two records: the last one of the log, and the first one that the group
has still to read. So a topic to which nobody writes does not fall behind by the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headwater import _core
from headwater.cli.connection import Cluster, Connection, code_name
from headwater.cli.errors import CommandError
from headwater.errors import ErrorCode
from headwater.model import NO_NODE, TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

EARLIEST, LATEST = -2, -1

_BY_GROUP_SINCE = 8  # from this version on OffsetFetch asks for groups
_BY_NAME_UNTIL = 9  # and until this one it speaks of topics by name
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


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    node = cluster.coordinator(group_id)
    if (node.version(ApiKey.OFFSET_FETCH) or 0) >= _BY_GROUP_SINCE:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
        )
    else:
        request = OffsetFetchRequest(group_id=group_id, topics=None)

    def found(answer: Any) -> Any:
        return answer.groups[0] if answer.groups else answer

    answer = cluster.ask_coordinator(
        group_id, request, lambda got: int(found(got).error_code), at_most=_BY_NAME_UNTIL
    )
    about = found(answer)
    if about.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        raise CommandError(f"no offsets of group {group_id}: {code_name(about.error_code)}")
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in about.topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


def topic_partitions(cluster: Cluster, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Every partition of these topics with its leader; topics that do not exist are left out."""
    if not topics:
        return {}
    return {
        TopicPartition(topic.name or "", each.partition_index): each.leader_id
        for topic in cluster.metadata(topics).topics
        if not topic.error_code
        for each in topic.partitions
    }


def offsets_at(
    cluster: Cluster, leaders: Mapping[TopicPartition, int], timestamp: int
) -> dict[TopicPartition, int]:
    """The offset that belongs to a time (or `EARLIEST`, `LATEST`) in each partition that can be
    asked; -1 if all records are older."""
    found = {}
    for node, partitions in _by_leader(cluster, leaders, leaders):
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=_by_topic(
                partitions,
                lambda name, numbers: ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                        for number in numbers
                    ],
                ),
            ),
        )
        for topic in node.ask(request).topics:
            for each in topic.partitions:
                if not each.error_code:
                    found[TopicPartition(topic.name, each.partition_index)] = each.offset
    return found


def lags(
    cluster: Cluster, committed: Mapping[TopicPartition, int], also: Iterable[TopicPartition]
) -> list[Lag]:
    """Of each partition that has an offset, and of those that a member reads without one."""
    partitions = sorted({*committed, *also})
    all_leaders = topic_partitions(cluster, {each.topic for each in partitions})
    leaders = {each: all_leaders[each] for each in partitions if each in all_leaders}
    ends = offsets_at(cluster, leaders, LATEST)
    behind = {
        each: (offset, ends[each])
        for each, offset in committed.items()
        if each in ends and offset < ends[each]
    }
    heads = _timestamps(cluster, leaders, {each: end - 1 for each, (_, end) in behind.items()})
    next_reads = _timestamps(cluster, leaders, {each: at for each, (at, _) in behind.items()})
    result = []
    for each in partitions:
        seconds = None
        if each in heads and each in next_reads:
            seconds = max(0, heads[each] - next_reads[each]) / 1000
        elif each in committed and each in ends and each not in behind:
            seconds = 0.0
        result.append(Lag(each, committed.get(each), ends.get(each), seconds))
    return result


def _timestamps(
    cluster: Cluster, leaders: Mapping[TopicPartition, int], at: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The timestamp of the record at each offset, or of the next one that is left in the log.

    A node sends a batch that is larger than was asked for only as the first of an answer, so what
    came without one is asked for again, alone.
    """
    found: dict[TopicPartition, int] = {}
    for node, partitions in _by_leader(cluster, leaders, at):
        found |= _fetch_timestamps(node, {each: at[each] for each in partitions})
        for each in partitions:
            if each not in found:
                found |= _fetch_timestamps(node, {each: at[each]})
    return found


def _fetch_timestamps(
    node: Connection, at: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=_by_topic(
            at,
            lambda name, numbers: FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=at[TopicPartition(name, number)],
                        partition_max_bytes=_LOOK_BYTES,
                    )
                    for number in numbers
                ],
            ),
        ),
    )
    found = {}
    for topic in node.ask(request, at_most=_FETCH_BY_NAME_UNTIL).responses:
        for each in topic.partitions:
            where = TopicPartition(topic.topic, each.partition_index)
            records = bytes(each.records or b"")
            timestamp = None if each.error_code else _timestamp(records, at[where])
            if timestamp is not None:
                found[where] = timestamp
    return found


def _timestamp(batches: bytes, offset: int) -> int | None:
    try:
        records = _core.decode(batches, from_offset=offset)
    except _core.CorruptBatch:
        return None
    return records[0].timestamp if records else None


def _by_leader(
    cluster: Cluster,
    leaders: Mapping[TopicPartition, int],
    partitions: Iterable[TopicPartition],
) -> Iterable[tuple[Connection, list[TopicPartition]]]:
    """The partitions of each node that leads some; those without a leader cannot be asked."""
    grouped: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        grouped.setdefault(leaders[each], []).append(each)
    grouped.pop(NO_NODE, None)
    return [(cluster.node(node_id), led) for node_id, led in grouped.items()]


def _by_topic(
    partitions: Iterable[TopicPartition], make: Callable[[str, list[int]], Any]
) -> list[Any]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return [make(topic, numbers) for topic, numbers in by_topic.items()]
