"""Produce (key 0)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    Uuid,
    ignorable,
    message,
    never_null,
    since,
    tag,
    until,
)


@message(api=0, versions=(3, 13), flexible=9)
class ProduceRequest(Message):
    """The message `ProduceRequest`."""

    transactional_id: str | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData] = []


class TopicProduceData(Message):
    """A part of `ProduceRequest`."""

    name: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partition_data: list[PartitionProduceData] = []


class PartitionProduceData(Message):
    """A part of `ProduceRequest`."""

    index: Int32
    records: Records | None = None


@message(api=0, versions=(3, 13), flexible=9)
class ProduceResponse(Message):
    """The message `ProduceResponse`."""

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=10)] = []


class TopicProduceResponse(Message):
    """A part of `ProduceResponse`."""

    name: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class PartitionProduceResponse(Message):
    """A part of `ProduceResponse`."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Annotated[Int64, ignorable] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8), ignorable] = []
    error_message: Annotated[str | None, since(8), ignorable] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, tag(0, since=10), never_null] = None


class BatchIndexAndErrorMessage(Message):
    """A part of `ProduceResponse`."""

    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Message):
    """A part of `ProduceResponse`."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Message):
    """A part of `ProduceResponse`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
