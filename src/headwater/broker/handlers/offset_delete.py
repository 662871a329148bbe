"""OffsetDelete: deletes committed offsets of topics that a group no longer reads."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, denied
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    try:
        check(broker, context, Operation.DELETE, AclResource.GROUP, request.group_id)
        missing = _remove_missing(broker, context, request)
        answer = broker.groups.ask(
            request.group_id,
            OffsetDeleteResponse,
            lambda shard, token: shard.decide_delete_offsets(
                token, request, now=broker.clock.monotonic()
            ),
        )
    except ApiError as refusal:
        return OffsetDeleteResponse(error_code=refusal.code)
    if isinstance(answer, OffsetDeleteResponse):
        return _merged(answer, missing)
    return _merged_later(answer, missing)


def _merged(
    response: OffsetDeleteResponse, missing: list[OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    if not response.error_code:
        response.topics += missing
    return response


async def _merged_later(
    answer: Awaitable[OffsetDeleteResponse], missing: list[OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    response = await answer
    return _merged(response, missing)


def _remove_missing(
    broker: Broker, context: Context, request: OffsetDeleteRequest
) -> list[OffsetDeleteResponseTopic]:
    names = (topic.name for topic in request.topics)
    unreadable = denied(broker, context, Operation.READ, AclResource.TOPIC, names)
    missing: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        found = broker.image.topics.get(topic.name)
        gone = {
            partition.partition_index: None
            for partition in topic.partitions
            if topic.name in unreadable
            or found is None
            or partition.partition_index not in found.partitions
        }
        if gone:
            topic.partitions = [p for p in topic.partitions if p.partition_index not in gone]
            missing.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=index,
                            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                            if topic.name in unreadable
                            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                        for index in gone
                    ],
                )
            )
    request.topics = [topic for topic in request.topics if topic.partitions]
    return missing
