"""Storing how far a group has read, as part of a transaction."""

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


@message(api=28, versions=(0, 6), flexible=3)
class TxnOffsetCommitRequest(Message):
    """Store these offsets when the transaction commits."""

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Annotated[Int32, since(3)] = -1
    member_id: Annotated[str, since(3)] = ""
    group_instance_id: Annotated[str | None, since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitRequestTopic(Message):
    """One of the `topics` of `TxnOffsetCommitRequest`."""

    name: Annotated[str, until(5), ignorable] = ""
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO_ID
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequestPartition(Message):
    """One of the `partitions` of `TxnOffsetCommitRequestTopic`."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    committed_metadata: str | None


@message(api=28, versions=(0, 6), flexible=3)
class TxnOffsetCommitResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


class TxnOffsetCommitResponseTopic(Message):
    """One of the `topics` of `TxnOffsetCommitResponse`."""

    name: Annotated[str, until(5), ignorable] = ""
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO_ID
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponsePartition(Message):
    """One of the `partitions` of `TxnOffsetCommitResponseTopic`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
