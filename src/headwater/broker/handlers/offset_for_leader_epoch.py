"""OffsetForLeaderEpoch: where an epoch ended here, so that a reader can find where logs part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import denied, is_allowed
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    hidden = _hidden(broker, context, request)
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        results: list[EpochEndOffset] = []
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
        for wanted in topic.partitions:
            result = EpochEndOffset(partition=wanted.partition)
            results.append(result)
            try:
                if topic.topic in hidden:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = broker.partitions.get(topic.topic, wanted.partition)
                partition.lead(wanted.current_leader_epoch)
            except ApiError as refusal:
                result.error_code = refusal.code
                continue
            end = partition.log.epoch_end(wanted.leader_epoch)
            result.leader_epoch = end.epoch
            result.end_offset = end.offset
    return response


def _hidden(
    broker: Broker, context: Context, request: OffsetForLeaderEpochRequest
) -> frozenset[str]:
    """Returns the topics that the client may not describe. Nodes may describe all."""
    if broker.authorizer is None or is_allowed(
        broker, context, Operation.CLUSTER_ACTION, AclResource.CLUSTER, tentative=True
    ):
        return frozenset()
    names = (topic.topic for topic in request.topics)
    return denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, names)
