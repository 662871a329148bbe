"""Storing how far a group has read."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    since,
    until,
)


@message(api=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest(Message):
    """Store these offsets for a group."""

    group_id: str
    generation_id_or_member_epoch: Annotated[Int32, ignorable] = -1
    member_id: Annotated[str, ignorable]
    group_instance_id: Annotated[str | None, since(7)] = None
    retention_time_ms: Annotated[Int64, until(4), ignorable] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitRequestTopic(Message):
    """One of the `topics` of `OffsetCommitRequest`."""

    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_ID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequestPartition(Message):
    """One of the `partitions` of `OffsetCommitRequestTopic`."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(6), ignorable] = -1
    committed_metadata: str | None


@message(api=8, versions=(2, 10), flexible=8)
class OffsetCommitResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: list[OffsetCommitResponseTopic] = []


class OffsetCommitResponseTopic(Message):
    """One of the `topics` of `OffsetCommitResponse`."""

    name: Annotated[str, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_ID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponsePartition(Message):
    """One of the `partitions` of `OffsetCommitResponseTopic`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
