"""Finding the offset that belongs to a time, or to the ends of a log."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, ignorable, message, since


@message(api=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest(Message):
    """Look up an offset for each partition."""

    replica_id: Int32
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, since(10), ignorable] = 0


class ListOffsetsTopic(Message):
    """One of the `topics` of `ListOffsetsRequest`."""

    name: str
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsPartition(Message):
    """One of the `partitions` of `ListOffsetsTopic`."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4), ignorable] = -1
    timestamp: Int64


@message(api=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse(Message):
    """The offsets that were found."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: list[ListOffsetsTopicResponse] = []


class ListOffsetsTopicResponse(Message):
    """One of the `topics` of `ListOffsetsResponse`."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsPartitionResponse(Message):
    """One of the `partitions` of `ListOffsetsTopicResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1
