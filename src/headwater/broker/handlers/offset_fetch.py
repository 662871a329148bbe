"""OffsetFetch: where a group, or many, have got to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


def handle(broker: Broker, context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= _MANY_GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[_fetch(broker, context, request, group) for group in request.groups]
        )
    topics = request.topics
    group = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ],
    )
    found = _fetch(broker, context, request, group)
    if found.error_code and context.version < 2:
        found.topics = _refused(group.topics or [], found.error_code)
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


def _fetch(
    broker: Broker, context: Context, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    by_id = context.version >= _TOPIC_IDS_SINCE
    unknown = _name_topics(broker, group) if by_id else []
    try:
        shard = broker.groups.shard(group.group_id)
    except ApiError as refusal:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=refusal.code)
    found = shard.machine.fetch_offsets(group, require_stable=request.require_stable)
    if by_id:
        for topic in found.topics:
            known = broker.image.topics.get(topic.name)
            topic.topic_id = known.id if known is not None else bytes(16)
        # What was asked for without names may hold topics that are gone.
        found.topics = [topic for topic in found.topics if any(topic.topic_id)]
    if not found.error_code:
        found.topics += unknown
    return found


def _name_topics(broker: Broker, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Puts names to ids; answers for those that no topic has."""
    if group.topics is None:
        return []
    unknown: list[OffsetFetchResponseTopics] = []
    known: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        name = broker.partitions.name_of(topic.topic_id)
        if name is not None:
            topic.name = name
            known.append(topic)
        else:
            unknown += _refused([topic], ErrorCode.UNKNOWN_TOPIC_ID)
    group.topics = known
    return unknown


def _refused(topics: list[OffsetFetchRequestTopics], code: int) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]
