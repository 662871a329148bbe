"""OffsetForLeaderEpoch (key 23)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, ignorable, message, since


@message(api=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Message):
    """The message `OffsetForLeaderEpochRequest`."""

    replica_id: Annotated[Int32, since(3), ignorable] = -2
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderTopic(Message):
    """A part of `OffsetForLeaderEpochRequest`."""

    topic: str
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderPartition(Message):
    """A part of `OffsetForLeaderEpochRequest`."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, ignorable] = -1
    leader_epoch: Int32


@message(api=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse(Message):
    """The message `OffsetForLeaderEpochResponse`."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[OffsetForLeaderTopicResult] = []


class OffsetForLeaderTopicResult(Message):
    """A part of `OffsetForLeaderEpochResponse`."""

    topic: str = ""
    partitions: list[EpochEndOffset] = []


class EpochEndOffset(Message):
    """A part of `OffsetForLeaderEpochResponse`."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Annotated[Int32, ignorable] = -1
    end_offset: Int64 = -1
