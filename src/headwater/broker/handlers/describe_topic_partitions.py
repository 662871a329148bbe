"""DescribeTopicPartitions: topics in pages, with their eligible leaders (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import denied, operations
from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.metadata import Image, Topic
from headwater.metadata.topic_names import is_internal, why_invalid
from headwater.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headwater.security.acls import AclResource
from headwater.security.operations import NOT_ASKED, Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = broker.image
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    asked_all = not asked
    if cursor is not None and (
        cursor.partition_index < 0 or not (asked_all or cursor.topic_name in asked)
    ):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                )
                for topic in request.topics
            ]
        )
    names = sorted(asked or image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    hidden = denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, names, quiet=asked_all)
    response = DescribeTopicPartitionsResponse(topics=[])
    if hidden:
        names = [name for name in names if name not in hidden]
    left = max(
        1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit)
    )
    _fill(broker, context, response, names, left, asked_all=asked_all, cursor=cursor)
    if not asked_all:
        response.topics += [_unauthorized(name) for name in sorted(hidden)]
    return response


def _fill(
    broker: Broker,
    context: Context,
    response: DescribeTopicPartitionsResponse,
    names: list[str],
    left: int,
    *,
    asked_all: bool,
    cursor: DescribeTopicPartitionsRequestCursor | None,
) -> None:
    """Adds topics until so many partitions are described, and says where the next page starts."""
    image = broker.image
    for name in names:
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=0
            )
            return
        topic = image.topics.get(name)
        if topic is None:
            if not asked_all:
                response.topics.append(_missing(broker, context, name))
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        answer, upto = _describe(image, topic, first, left)
        answer.topic_authorized_operations = operations(broker, context, AclResource.TOPIC, name)
        response.topics.append(answer)
        left -= len(answer.partitions)
        if upto < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name=name, partition_index=upto
            )
            return


def _missing(broker: Broker, context: Context, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
        if why_invalid(name)
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=operations(broker, context, AclResource.TOPIC, name)
        if name
        else NOT_ASKED,
    )


def _unauthorized(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Does not tell whether the topic exists."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name
    )


def _describe(
    image: Image, topic: Topic, first: int, count_max: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int]:
    upto = min(len(topic.partitions), first + count_max)
    answer = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[],
    )
    for index in range(first, upto):
        state = topic.partitions[index]
        answer.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if state.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=list(state.elr),
                last_known_elr=list(state.last_known_elr),
                offline_replicas=image.offline_replicas(state),
            )
        )
    return answer, upto
