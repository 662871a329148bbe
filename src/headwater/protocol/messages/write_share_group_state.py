"""Writing the state of share partitions."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
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
    """Write these changes."""

    group_id: str
    topics: list[WriteStateData] = []


class WriteStateData(Message):
    """One of the `topics` of `WriteShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """One of the `partitions` of `WriteStateData`."""

    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1
    state_batches: list[StateBatch] = []


class StateBatch(Message):
    """A range of offsets in the same state."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(api=85, versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse(Message):
    """The outcome for each partition."""

    results: list[WriteStateResult] = []


class WriteStateResult(Message):
    """One of the `results` of `WriteShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """One of the `partitions` of `WriteStateResult`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
