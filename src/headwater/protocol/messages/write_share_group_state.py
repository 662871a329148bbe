"""WriteShareGroupState (key 85)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=85, versions=(0, 1), flexible=0)
class WriteShareGroupStateRequest(Message):
    """The message `WriteShareGroupStateRequest`."""

    group_id: str
    topics: list[WriteStateData] = []


class WriteStateData(Message):
    """A part of `WriteShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """A part of `WriteShareGroupStateRequest`."""

    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1
    state_batches: list[StateBatch] = []


class StateBatch(Message):
    """A part of `WriteShareGroupStateRequest`."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(api=85, versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse(Message):
    """The message `WriteShareGroupStateResponse`."""

    results: list[WriteStateResult] = []


class WriteStateResult(Message):
    """A part of `WriteShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """A part of `WriteShareGroupStateResponse`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
