"""Asking where an epoch ended, to find where two logs part."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, ignorable, message, since


@message(api=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Message):
    """Asks where leader epochs ended."""

    replica_id: Annotated[Int32, since(3), ignorable] = -2
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderTopic(Message):
    """One of the `topics` of `OffsetForLeaderEpochRequest`."""

    topic: str
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderPartition(Message):
    """One of the `partitions` of `OffsetForLeaderTopic`."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, ignorable] = -1
    leader_epoch: Int32


@message(api=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse(Message):
    """The end of each epoch."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[OffsetForLeaderTopicResult] = []


class OffsetForLeaderTopicResult(Message):
    """One of the `topics` of `OffsetForLeaderEpochResponse`."""

    topic: str = ""
    partitions: list[EpochEndOffset] = []


class EpochEndOffset(Message):
    """One of the `partitions` of `OffsetForLeaderTopicResult`."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Annotated[Int32, ignorable] = -1
    end_offset: Int64 = -1
