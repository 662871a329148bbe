"""DeleteRecords: moves the start of a log forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.topic_names import is_internal
from headwater.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

TO_HIGH_WATERMARK = -1


def handle(
    broker: Broker, context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    # If a partition is named twice, the last one counts.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            offsets = wanted.setdefault(topic.name, {})
            offsets[partition.partition_index] = partition.offset
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _result(broker, name, index, offset) for index, offset in offsets.items()
                ],
            )
            for name, offsets in wanted.items()
        ]
    )


def _result(broker: Broker, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
    try:
        result.low_watermark = _delete(broker, topic, index, offset)
    except ApiError as refusal:
        result.error_code = refusal.code
    return result


def _delete(broker: Broker, topic: str, index: int, offset: int) -> int:
    if topic not in broker.image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} does not exist")
    if is_internal(topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    partition = broker.partitions.get(topic, index)
    partition.lead(-1)
    log = partition.log
    if log.config.compact and not log.config.delete:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not include delete"
        )
    before = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if before < 0 or before > partition.high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset}, the high watermark of {partition.tp} is {partition.high_watermark}",
        )
    if before > log.start:
        log.delete_records_before(before)
        partition.changed()
    return log.start
