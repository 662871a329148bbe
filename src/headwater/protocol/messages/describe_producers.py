"""Describing the producers that write to a partition."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Int64, Message, message


@message(api=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest(Message):
    """Asks for the active producers of some partitions."""

    topics: list[TopicRequest] = []


class TopicRequest(Message):
    """One of the `topics` of `DescribeProducersRequest`."""

    name: str
    partition_indexes: list[Int32] = []


@message(api=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse(Message):
    """The producers."""

    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []


class TopicResponse(Message):
    """One of the `topics` of `DescribeProducersResponse`."""

    name: str = ""
    partitions: list[PartitionResponse] = []


class PartitionResponse(Message):
    """One of the `partitions` of `TopicResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class ProducerState(Message):
    """One of the `active_producers` of `PartitionResponse`."""

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1
