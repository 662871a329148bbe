"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import denied
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.topic_names import check as check_topic_name
from headwater.metadata.topic_names import why_invalid
from headwater.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    names = [topic.name for topic in request.topics if not why_invalid(topic.name)]
    not_readable = denied(broker, context, Operation.READ, AclResource.TOPIC, names)
    response = DescribeProducersResponse(topics=[])
    for topic in request.topics:
        results: list[PartitionResponse] = []
        response.topics.append(TopicResponse(name=topic.name, partitions=results))
        for index in topic.partition_indexes:
            result = PartitionResponse(partition_index=index)
            results.append(result)
            try:
                if topic.name in not_readable:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                _check(broker, topic.name, index)
                partition = broker.partitions.get(topic.name, index)
                partition.lead(-1)
            except ApiError as refusal:
                result.error_code = refusal.code
                result.error_message = refusal.message
                continue
            result.active_producers = [
                ProducerState(
                    producer_id=state.producer_id,
                    producer_epoch=state.epoch,
                    last_sequence=state.last_sequence,
                    last_timestamp=state.last_timestamp,
                    coordinator_epoch=state.coordinator_epoch,
                    current_txn_start_offset=state.txn_first_offset,
                )
                for state in partition.log.producers.active()
            ]
    return response


def _check(broker: Broker, topic: str, index: int) -> None:
    check_topic_name(topic)
    if topic in broker.image.topics and broker.image.partition(topic, index) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # Kafka has no words for it either
