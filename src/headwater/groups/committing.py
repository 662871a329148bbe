"""Requests about offsets: which records a commit or a deletion writes, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.errors import ErrorCode
from headwater.groups.classic.group import ClassicGroup
from headwater.groups.decision import DecisionBuilder
from headwater.groups.modern import ModernGroup
from headwater.groups.offsets import NEVER, Offsets
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
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
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headwater.protocol.records.group_offsets import OffsetCommitKey, OffsetCommitValue

_RETENTION_OF_BROKER = -1
# From this version on a commit to a group that is not there says so.
_GROUP_NOT_FOUND_SINCE = 9


def check(
    group: ClassicGroup | ModernGroup | None,
    request: OffsetCommitRequest,
    *,
    version: int,
    now: float,
) -> ErrorCode:
    """Whether whoever asks may commit for the group. In a classic group it shows that they live."""
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return ErrorCode.NONE  # the commit itself makes a group that has only offsets
        is_old = version < _GROUP_NOT_FOUND_SINCE
        return ErrorCode.ILLEGAL_GENERATION if is_old else ErrorCode.GROUP_ID_NOT_FOUND
    member_id, instance_id = request.member_id, request.group_instance_id
    if not isinstance(group, ClassicGroup):
        return group.check_commit(
            member_id,
            instance_id,
            generation,
            version=version,
            transactional=False,
            partitions=_partitions_of(request),
        )
    code = group.check_commit(member_id, instance_id, generation, transactional=False)
    if code is ErrorCode.NONE:
        group.on_commit(member_id, now)
    return code


def check_in_transaction(
    group: ClassicGroup | ModernGroup | None, request: TxnOffsetCommitRequest, *, version: int
) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    member_id, instance_id = request.member_id, request.group_instance_id
    if isinstance(group, ClassicGroup):
        return group.check_commit(member_id, instance_id, generation, transactional=True)
    code = group.check_commit(
        member_id,
        instance_id,
        generation,
        version=version,
        transactional=True,
        partitions=_partitions_of(request),
    )
    is_stale = code is ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.ILLEGAL_GENERATION if is_stale else code


def _partitions_of(
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
) -> Iterator[tuple[bytes, str, int]]:
    """What it commits: topic id, topic and partition of each offset."""
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.topic_id, topic.name, partition.partition_index


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
            metadata = partition.committed_metadata or ""
            code = _check_metadata(metadata, metadata_max)
            if code is ErrorCode.NONE:
                builder.write(
                    OffsetCommitKey(
                        group=request.group_id,
                        topic=topic.name,
                        partition=partition.partition_index,
                    ),
                    OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=builder.now_ms,
                        expire_timestamp=expire_ms,
                        topic_id=topic.topic_id,
                    ),
                )
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
            metadata = partition.committed_metadata or ""
            code = _check_metadata(metadata, metadata_max)
            if code is ErrorCode.NONE:
                builder.write(
                    OffsetCommitKey(
                        group=request.group_id,
                        topic=topic.name,
                        partition=partition.partition_index,
                    ),
                    OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=builder.now_ms,
                    ),
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


def _check_metadata(metadata: str, length_max: int) -> ErrorCode:
    """Kafka counts UTF-16 units, which are more than characters only outside of the BMP."""
    length = len(metadata)
    if length <= length_max < 2 * length:
        length = len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if length > length_max else ErrorCode.NONE
