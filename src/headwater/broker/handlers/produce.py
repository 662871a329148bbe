"""Produce: append each partition's batch, then answer when `acks` is satisfied.

Everything up to the append runs before the first wait, in the order the connection sent it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.topic_names import is_internal
from headwater.model import id_text
from headwater.net.connection import Refused
from headwater.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.storage import Origin, RecordsRefused

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

# The name under which Kafka's own tools may write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"


def handle(
    broker: Broker, context: Context, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    acks = request.acks
    by_id = context.version >= 13
    now_ms = broker.clock.wall_ms()
    waits: list[tuple[Partition, int, PartitionProduceResponse]] | None = None
    failed = False
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        if by_id:
            name = broker.partitions.name_of(topic.topic_id)
            answer = TopicProduceResponse(topic_id=topic.topic_id, partition_responses=[])
        else:
            name = topic.name
            answer = TopicProduceResponse(name=name, partition_responses=[])
        topics.append(answer)
        for batch in topic.partition_data:
            result = PartitionProduceResponse(index=batch.index, error_code=0, base_offset=-1)
            answer.partition_responses.append(result)
            try:
                if acks not in (0, 1, ALL_IN_SYNC):
                    raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}")
                partition = _partition(broker, context, name, topic.topic_id, batch.index)
                appended = partition.append(
                    batch.records or b"", acks=acks, now_ms=now_ms, origin=Origin.CLIENT
                )
            except ApiError as refusal:
                failed = True
                _refuse(broker, result, name, batch.index, refusal)
                continue
            result.base_offset = appended.base_offset
            result.log_append_time_ms = appended.log_append_time
            result.log_start_offset = appended.log_start
            if acks == ALL_IN_SYNC or partition.needs_flush():
                end = appended.last_offset + 1
                if partition.high_watermark < end or partition.needs_flush():
                    waits = waits or []
                    waits.append((partition, end, result))
    response = ProduceResponse(responses=topics)
    if failed and context.version >= 10:
        _add_endpoints(broker, context, response)
    if acks == 0:
        if failed:
            # The only way to tell a client that asked for no answer is to end the connection.
            raise Refused(f"a produce request with acks=0 failed: {_first_error(response).name}")
        return None
    if waits is None:
        return response
    return _wait(broker, response, waits, acks, request.timeout_ms)


def _partition(
    broker: Broker, context: Context, name: str | None, topic_id: bytes, index: int
) -> Partition:
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {id_text(topic_id)}")
    if is_internal(name) and context.client_id != _ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic")
    return broker.partitions.get(name, index)


def _refuse(
    broker: Broker,
    result: PartitionProduceResponse,
    name: str | None,
    index: int,
    refusal: ApiError,
) -> None:
    result.error_code = refusal.code
    result.error_message = refusal.message
    if isinstance(refusal, RecordsRefused):
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
            for at, why in refusal.record_errors
        ]
    if refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and name is not None:
        leader = broker.partitions.leader_hint(name, index)
        if leader is not None:
            result.current_leader = LeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=leader.epoch
            )


def _add_endpoints(broker: Broker, context: Context, response: ProduceResponse) -> None:
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partition_responses
        if partition.current_leader is not None
    }
    response.node_endpoints = [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.endpoints(context)
        if node.id in leaders
    ]


def _first_error(response: ProduceResponse) -> ErrorCode:
    return next(
        ErrorCode(partition.error_code)
        for topic in response.responses
        for partition in topic.partition_responses
        if partition.error_code
    )


async def _wait(
    broker: Broker,
    response: ProduceResponse,
    waits: list[tuple[Partition, int, PartitionProduceResponse]],
    acks: int,
    timeout_ms: int,
) -> ProduceResponse | None:
    deadline = broker.clock.monotonic() + timeout_ms / 1000
    for partition, end, result in waits:
        try:
            if partition.needs_flush():
                await partition.flush()
            if acks == ALL_IN_SYNC:
                await broker.until(deadline, partition.replicated(end))
        except TimeoutError:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        except ApiError as refusal:
            result.error_code = refusal.code
        else:
            continue
        result.base_offset = -1
    return response
