"""Committed offsets of groups, and offsets that wait for their transaction to end.

Only `apply` and `end_transaction` change them. Whether a member may commit is decided by its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from headwater.coordination import NO_PRODUCER, DecisionBuilder, Record
from headwater.errors import ErrorCode
from headwater.model import ZERO_ID
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headwater.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headwater.protocol.records.group_offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headwater.protocol.schema import Message

NO_OFFSET = -1
_RETENTION_OF_BROKER = -1
NEVER = -1


class Committed(NamedTuple):
    """One committed offset; `record_offset` is that of its record in the shard's log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    topic_id: bytes
    record_offset: int


Partitions: TypeAlias = dict[int, Committed]
Topics: TypeAlias = dict[str, Partitions]


class OffsetTable:
    """Committed offsets by group, topic and partition, without empty groups or topics."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}

    def get(self, group: str, topic: str, partition: int) -> Committed | None:
        return self._groups.get(group, {}).get(topic, {}).get(partition)

    def topics(self, group: str) -> Topics:
        return self._groups.get(group, {})

    def groups(self) -> Iterable[tuple[str, Topics]]:
        return self._groups.items()

    def put(self, group: str, topic: str, partition: int, committed: Committed) -> None:
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def remove(self, group: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group)
        partitions = topics.get(topic) if topics is not None else None
        if topics is None or partitions is None or partition not in partitions:
            return
        del partitions[partition]
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group]

    def __iter__(self) -> Iterator[tuple[str, str, int, Committed]]:
        for group, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    yield group, topic, partition, committed


class Offsets:
    """The offsets of a shard."""

    __slots__ = ("_pending", "_unstable", "committed")

    def __init__(self) -> None:
        self.committed = OffsetTable()
        # Offsets in open transactions, by producer id.
        self._pending: dict[int, OffsetTable] = {}
        # The number of open transactions with an offset of a partition.
        self._unstable: dict[str, dict[tuple[str, int], int]] = {}

    # The log

    def apply(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        *,
        offset: int,
        producer_id: int = NO_PRODUCER,
    ) -> None:
        group, topic, partition = key.group, key.topic, key.partition
        if value is None:
            self.committed.remove(group, topic, partition)
            self._remove_pending(group, topic, partition)
            return
        committed = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            offset,
        )
        if producer_id == NO_PRODUCER:
            self.committed.put(group, topic, partition, committed)
            return
        pending = self._pending.setdefault(producer_id, OffsetTable())
        if pending.get(group, topic, partition) is None:
            unstable = self._unstable.setdefault(group, {})
            unstable[topic, partition] = unstable.get((topic, partition), 0) + 1
        pending.put(group, topic, partition, committed)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Applies a marker: commits or drops the pending offsets of a producer."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for group, topic, partition, offset in pending:
            self._release(group, topic, partition)
            if not commits:
                continue
            before = self.committed.get(group, topic, partition)
            # The later record wins, however late its marker: compaction keeps the later one, too,
            # and a shard that is loaded again must not see another offset.
            if before is None or offset.record_offset > before.record_offset:
                self.committed.put(group, topic, partition, offset)

    def _remove_pending(self, group: str, topic: str, partition: int) -> None:
        if (topic, partition) not in self._unstable.get(group, {}):
            return
        for pending in self._pending.values():
            if pending.get(group, topic, partition) is not None:
                pending.remove(group, topic, partition)
                self._release(group, topic, partition)

    def _release(self, group: str, topic: str, partition: int) -> None:
        unstable = self._unstable[group]
        unstable[topic, partition] -= 1
        if not unstable[topic, partition]:
            del unstable[topic, partition]
            if not unstable:
                del self._unstable[group]

    def durable_state(self) -> object:
        return (
            {(g, t, p): committed for g, t, p, committed in self.committed},
            {
                producer_id: {(g, t, p): committed for g, t, p, committed in table}
                for producer_id, table in self._pending.items()
            },
        )

    # Reading

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Returns whether an open transaction may still change the offset."""
        return (topic, partition) in self._unstable.get(group, {})

    def has_open_transactions(self, group: str) -> bool:
        return group in self._unstable

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        group = request.group_id
        topics = self.committed.topics(group)
        if request.topics is None:
            wanted = ((name, ZERO_ID, list(partitions)) for name, partitions in topics.items())
        else:
            wanted = ((t.name, t.topic_id, t.partition_indexes) for t in request.topics)
        answer = OffsetFetchResponseGroup(group_id=group)
        for name, topic_id, indexes in wanted:
            partitions = topics.get(name, {})
            found = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
            for index in indexes:
                if require_stable and self.is_unstable(group, name, index):
                    found.partitions.append(_none(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                else:
                    found.partitions.append(_fetched(index, partitions.get(index), topic_id))
            answer.topics.append(found)
        return answer

    # Deleting

    def tombstone(self, group: str, topic: str, partition: int) -> Record | None:
        """Returns the tombstone of an offset, None if there is no such offset."""
        if self.committed.get(group, topic, partition) is None and not self.is_unstable(
            group, topic, partition
        ):
            return None
        return _tombstone(group, topic, partition)

    def tombstones(self, group: str) -> list[Record]:
        """Returns the tombstones of all offsets of a group, pending ones included."""
        partitions = {
            (topic, partition): None
            for topic, committed in self.committed.topics(group).items()
            for partition in committed
        }
        partitions.update(dict.fromkeys(self._unstable.get(group, {})))
        return [_tombstone(group, topic, partition) for topic, partition in partitions]

    def topic_tombstones(
        self, names: Iterable[str], *, living: Callable[[str], bytes | None]
    ) -> list[Record]:
        """Returns the tombstones of the offsets of deleted topics. If a topic with the same name
        exists again, `living` returns its id, and offsets of the new topic stay."""
        gone = {name: living(name) for name in names}
        found: dict[tuple[str, str, int], None] = {}
        for table in (self.committed, *self._pending.values()):
            for group, topics in table.groups():
                for topic in gone.keys() & topics.keys():
                    for partition, committed in topics[topic].items():
                        if committed.topic_id == ZERO_ID or committed.topic_id != gone[topic]:
                            found[group, topic, partition] = None
        return [_tombstone(*where) for where in found]

    def expired(
        self,
        group: str,
        *,
        now_ms: int,
        retention_ms: int,
        base_ms: Callable[[int], int | None],
        is_subscribed: Callable[[str], bool],
        count_max: int,
    ) -> tuple[list[Record], bool]:
        """Returns tombstones of offsets that have expired, and whether none are left after that.

        `base_ms` returns when the retention of an offset began, by its commit time."""
        expired: list[Record] = []
        nothing_left = not self.has_open_transactions(group)
        for topic, partitions in self.committed.topics(group).items():
            subscribed = is_subscribed(topic)
            for partition, committed in partitions.items():
                is_over = _is_over(committed, now_ms, retention_ms, base_ms)
                is_stable = not self.is_unstable(group, topic, partition)
                if is_over and is_stable and not subscribed and len(expired) < count_max:
                    expired.append(_tombstone(group, topic, partition))
                else:
                    nothing_left = False
        return expired, nothing_left


def modernized(
    key: LegacyOffsetCommitKey, value: Message | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """Converts an offset that a broker before Kafka 0.9 wrote."""
    assert value is None or isinstance(value, LegacyOffsetCommitValue)
    return (
        OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition),
        None
        if value is None
        else OffsetCommitValue(
            offset=value.offset,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
        ),
    )


def _is_over(
    committed: Committed, now_ms: int, retention_ms: int, base_ms: Callable[[int], int | None]
) -> bool:
    since_ms = base_ms(committed.commit_ms)
    if since_ms is None:
        return False
    if committed.expire_ms != NEVER:
        return now_ms >= committed.expire_ms  # old clients set the retention themselves
    return now_ms - since_ms >= retention_ms


def _tombstone(group: str, topic: str, partition: int) -> Record:
    return Record(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def _fetched(
    index: int, committed: Committed | None, topic_id: bytes
) -> OffsetFetchResponsePartitions:
    if committed is None or (
        topic_id not in (ZERO_ID, committed.topic_id) and committed.topic_id != ZERO_ID
    ):
        return _none(index)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _none(index: int, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, error_code=code
    )


# Requests


def commit(
    request: OffsetCommitRequest, builder: DecisionBuilder, *, metadata_max: int
) -> OffsetCommitResponse:
    expire_ms = NEVER
    if request.retention_time_ms != _RETENTION_OF_BROKER:
        expire_ms = builder.now_ms + request.retention_time_ms
    response = OffsetCommitResponse()
    for topic in request.topics:
        answered = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answered)
        for partition in topic.partitions:
            code = _check_metadata(partition.committed_metadata or "", metadata_max)
            if code is ErrorCode.NONE:
                key, value = _record(request.group_id, topic.name, partition, now_ms=builder.now_ms)
                value.expire_timestamp = expire_ms
                value.topic_id = topic.topic_id
                builder.write(key, value)
            answered.partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
    return response


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def commit_in_transaction(
    request: TxnOffsetCommitRequest, builder: DecisionBuilder, *, metadata_max: int
) -> TxnOffsetCommitResponse:
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        answered = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answered)
        for partition in topic.partitions:
            code = _check_metadata(partition.committed_metadata or "", metadata_max)
            if code is ErrorCode.NONE:
                builder.write(
                    *_record(request.group_id, topic.name, partition, now_ms=builder.now_ms)
                )
            answered.partitions.append(
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
    return response


def commit_in_transaction_refused(
    request: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def delete_offsets(
    request: OffsetDeleteRequest,
    offsets: Offsets,
    builder: DecisionBuilder,
    *,
    is_subscribed: Callable[[str], bool],
) -> OffsetDeleteResponse:
    response = OffsetDeleteResponse()
    for topic in request.topics:
        answered = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answered)
        subscribed = is_subscribed(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        for index in dict.fromkeys(partition.partition_index for partition in topic.partitions):
            answered.partitions.append(
                OffsetDeleteResponsePartition(partition_index=index, error_code=code)
            )
            if subscribed:
                continue
            tombstone = offsets.tombstone(request.group_id, topic.name, index)
            if tombstone is not None:
                builder.records.append(tombstone)
    return response


def _record(
    group_id: str,
    topic: str,
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    *,
    now_ms: int,
) -> tuple[OffsetCommitKey, OffsetCommitValue]:
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition.partition_index)
    value = OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
    )
    return key, value


def _check_metadata(metadata: str, length_max: int) -> ErrorCode:
    """Kafka counts UTF-16 units, which differ from characters outside the BMP."""
    length = len(metadata)
    if length <= length_max < 2 * length:
        length = len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if length > length_max else ErrorCode.NONE
