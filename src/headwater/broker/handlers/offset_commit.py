"""OffsetCommit: commits offsets of a group."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, denied
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.groups.offsets import commit_refused
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    try:
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
    except ApiError as refusal:
        return commit_refused(request, refusal.code)
    missing = _remove_missing(broker, context, request)
    if missing and not request.topics:
        return OffsetCommitResponse(topics=missing)
    try:
        answer = broker.groups.ask(
            request.group_id,
            OffsetCommitResponse,
            lambda shard, token: shard.decide_commit(
                token,
                request,
                version=context.version,
                now=broker.clock.monotonic(),
                now_ms=broker.clock.wall_ms(),
            ),
        )
    except ApiError as refusal:
        answer = commit_refused(request, refusal.code)
    if isinstance(answer, OffsetCommitResponse):
        return _merged(answer, missing)
    return _merged_later(request, answer, missing)


def _merged(
    response: OffsetCommitResponse, missing: list[OffsetCommitResponseTopic]
) -> OffsetCommitResponse:
    """Merges the results of partitions that exist and of those that do not."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in missing:
        known = by_topic.get((topic.name, topic.topic_id))
        if known is not None:
            known.partitions += topic.partitions
        else:
            response.topics.append(topic)
    return response


async def _merged_later(
    request: OffsetCommitRequest,
    answer: Awaitable[OffsetCommitResponse],
    missing: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    try:
        response = await answer
    except ApiError as refusal:  # the group has moved, or too few replicas have the commit
        response = commit_refused(request, refusal.code)
    return _merged(response, missing)


def _remove_missing(
    broker: Broker, context: Context, request: OffsetCommitRequest
) -> list[OffsetCommitResponseTopic]:
    """Removes partitions that do not exist from the request; returns their results."""
    by_id = context.version >= 10
    image = broker.image
    missing: list[OffsetCommitResponseTopic] = []
    known: list[OffsetCommitRequestTopic] = []
    unreadable: frozenset[str] = frozenset()
    if broker.authorizer is not None:
        names = [
            named.name if (named := image.topics_by_id.get(topic.topic_id)) else topic.name
            for topic in request.topics
        ]
        unreadable = denied(broker, context, Operation.READ, AclResource.TOPIC, filter(None, names))
    for topic in request.topics:
        found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        here: list[OffsetCommitRequestPartition] = []
        gone: list[OffsetCommitRequestPartition] = []
        for partition in topic.partitions:
            exists = found is not None and partition.partition_index in found.partitions
            (here if exists else gone).append(partition)
        if found is not None and (by_id or topic.name not in unreadable):
            topic.name, topic.topic_id = found.name, found.id
        if topic.name in unreadable:
            here, gone = [], topic.partitions
        if gone:
            code = (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if topic.name in unreadable
                else ErrorCode.UNKNOWN_TOPIC_ID
                if by_id and found is None
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            missing.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in gone
                    ],
                )
            )
        if here:
            topic.partitions = here
            known.append(topic)
    request.topics = known
    return missing
