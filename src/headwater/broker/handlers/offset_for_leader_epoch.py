"""OffsetForLeaderEpoch: where an epoch ended here, so that a reader can find where logs part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        results: list[EpochEndOffset] = []
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
        for wanted in topic.partitions:
            result = EpochEndOffset(partition=wanted.partition)
            results.append(result)
            try:
                partition = broker.partitions.get(topic.topic, wanted.partition)
                partition.lead(wanted.current_leader_epoch)
            except ApiError as refusal:
                result.error_code = refusal.code
                continue
            end = partition.log.epoch_end(wanted.leader_epoch)
            result.leader_epoch = end.epoch
            result.end_offset = end.offset
    return response
