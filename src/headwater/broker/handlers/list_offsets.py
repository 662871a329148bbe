"""ListOffsets: the first, the last, and other offsets of partitions, or offsets by timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import denied
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.model import NO_EPOCH, TopicPartition
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version of the request in which each special timestamp came.
_SPECIAL_SINCE = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
_DEBUGGING_CONSUMER = -2


def handle(broker: Broker, context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    duplicates = _named_twice(request)
    names = (topic.name for topic in request.topics)
    hidden = denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, names)
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        results: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
        for wanted in {asked.partition_index: asked for asked in topic.partitions}.values():
            result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            results.append(result)
            try:
                if topic.name in hidden:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if (topic.name, wanted.partition_index) in duplicates:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "partition named twice")
                _find(broker, context, request, topic.name, wanted, result)
            except ApiError as refusal:
                result.error_code = refusal.code
                result.timestamp = result.offset = -1
            if context.version < 4:
                result.leader_epoch = NO_EPOCH  # not on the wire yet
    return response


def _named_twice(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            (twice if key in seen else seen).add(key)
    return twice


def _find(
    broker: Broker,
    context: Context,
    request: ListOffsetsRequest,
    name: str,
    wanted: ListOffsetsPartition,
    result: ListOffsetsPartitionResponse,
) -> None:
    timestamp = wanted.timestamp
    if timestamp < LATEST and timestamp != EARLIEST:
        since = _SPECIAL_SINCE.get(timestamp)
        if since is None or context.version < since:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp}")
    partition = broker.partitions.get(name, wanted.partition_index)
    leader = partition.lead(wanted.current_leader_epoch)
    log = partition.log
    for_client = request.replica_id < 0 and request.replica_id != _DEBUGGING_CONSUMER
    if not for_client:
        end = log.end
    elif request.isolation_level == READ_COMMITTED:
        end = partition.last_stable_offset
    else:
        end = partition.high_watermark
    end_is_known = not for_client or leader.high_watermark >= leader.epoch_start
    if timestamp == LATEST:
        if not end_is_known:
            raise _not_available(context, partition.tp)
        result.offset, result.leader_epoch = end, leader.epoch
        return
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = log.start if timestamp == EARLIEST else log.local_start
        result.leader_epoch = log.earliest().leader_epoch
        return
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return  # nothing is tiered: no such offset
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
    if found is not None and found.offset < end:
        result.timestamp = found.timestamp
        result.offset = found.offset
        result.leader_epoch = found.leader_epoch
    elif not end_is_known:
        raise _not_available(context, partition.tp)


def _not_available(context: Context, tp: TopicPartition) -> ApiError:
    """KIP-207: until a new leader's high watermark has passed the start of its epoch, offsets that
    clients saw with the leader before would seem to go back."""
    is_known = context.version >= 5
    code = ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
    return ApiError(code, f"the high watermark of {tp} has not caught up since the election")
