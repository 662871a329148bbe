"""ListOffsets (key 2)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, ignorable, message, since


@message(api=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest(Message):
    """The message `ListOffsetsRequest`."""

    replica_id: Int32
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, since(10), ignorable] = 0


class ListOffsetsTopic(Message):
    """A part of `ListOffsetsRequest`."""

    name: str
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsPartition(Message):
    """A part of `ListOffsetsRequest`."""

    partition_index: Int32
    current_leader_epoch: Annotated[Int32, since(4), ignorable] = -1
    timestamp: Int64


@message(api=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse(Message):
    """The message `ListOffsetsResponse`."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: list[ListOffsetsTopicResponse] = []


class ListOffsetsTopicResponse(Message):
    """A part of `ListOffsetsResponse`."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsPartitionResponse(Message):
    """A part of `ListOffsetsResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1
