"""Appending record batches to partitions."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
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
    """Append these batches, and say when: `acks` 0 never, 1 once written, -1 once replicated."""

    transactional_id: str | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData] = []


class TopicProduceData(Message):
    """One of the `topic_data` of `ProduceRequest`."""

    name: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_ID
    partition_data: list[PartitionProduceData] = []


class PartitionProduceData(Message):
    """The batches for one partition."""

    index: Int32
    records: Records | None = None


@message(api=0, versions=(3, 13), flexible=9)
class ProduceResponse(Message):
    """The outcome for each partition."""

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=10)] = []


class TopicProduceResponse(Message):
    """One of the `responses` of `ProduceResponse`."""

    name: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_ID
    partition_responses: list[PartitionProduceResponse] = []


class PartitionProduceResponse(Message):
    """The base offset of the batches of a partition, or the error."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Annotated[Int64, ignorable] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8), ignorable] = []
    error_message: Annotated[str | None, since(8), ignorable] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, tag(0, since=10), never_null] = None


class BatchIndexAndErrorMessage(Message):
    """A record that made its batch be refused."""

    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Message):
    """The current leader, for a client that asked another node (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
