"""OffsetFetch: returns the committed offsets of one group or many."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, denied
from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
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
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.groups.shard import GroupShard

# Before this version an error is repeated for every partition.
_ERROR_OF_GROUP_SINCE = 2
_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10


def handle(
    broker: Broker, context: Context, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if context.version >= _MANY_GROUPS_SINCE:
        return gathered(
            [_fetch(broker, context, request, group) for group in request.groups],
            lambda groups: OffsetFetchResponse(groups=groups),
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
    return gathered(
        [_fetch(broker, context, request, group)],
        lambda groups: _one_group(groups[0], group, version=context.version),
    )


def _one_group(
    found: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, *, version: int
) -> OffsetFetchResponse:
    """Returns the response of a version that knows only one group."""
    if found.error_code and version < _ERROR_OF_GROUP_SINCE:
        found.topics = _refused(asked.topics or [], found.error_code)
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
) -> OffsetFetchResponseGroup | Awaitable[OffsetFetchResponseGroup]:
    by_id = context.version >= _TOPIC_IDS_SINCE
    unknown: list[OffsetFetchResponseTopics] = []

    def refused(refusal: ApiError) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=refusal.code)

    try:
        check(broker, context, Operation.DESCRIBE, AclResource.GROUP, group.group_id)
    except ApiError as refusal:
        return refused(refusal)
    if by_id:
        unknown = _name_topics(broker, group)
    asked_all = group.topics is None
    if group.topics and broker.authorizer is not None:
        unknown += _take_unauthorized(broker, context, group)

    def look(shard: GroupShard) -> OffsetFetchResponseGroup:
        found = shard.fetch_offsets(group, require_stable=request.require_stable)
        if by_id:
            for topic in found.topics:
                known = broker.image.topics.get(topic.name)
                topic.topic_id = known.id if known is not None else bytes(16)
            # A request for all topics may find offsets of topics that were deleted.
            found.topics = [topic for topic in found.topics if any(topic.topic_id)]
        if asked_all and broker.authorizer is not None:
            names = (topic.name for topic in found.topics)
            hidden = denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, names)
            found.topics = [topic for topic in found.topics if topic.name not in hidden]
        if not found.error_code:
            found.topics += unknown
        return found

    return broker.groups.read(group.group_id, look, refused)


def _name_topics(broker: Broker, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Gives topics their names; returns the results for ids that no topic has."""
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


def _take_unauthorized(
    broker: Broker, context: Context, group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseTopics]:
    """Takes topics that the client may not describe out of the request; returns their results."""
    topics = group.topics or []
    names = (topic.name for topic in topics)
    hidden = denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, names)
    group.topics = [topic for topic in topics if topic.name not in hidden]
    return _refused(
        [topic for topic in topics if topic.name in hidden], ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


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
