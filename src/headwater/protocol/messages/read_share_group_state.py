"""ReadShareGroupState (key 84)."""

from __future__ import annotations

from headwater.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, Uuid, message


@message(api=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateRequest(Message):
    """The message `ReadShareGroupStateRequest`."""

    group_id: str
    topics: list[ReadStateData] = []


class ReadStateData(Message):
    """A part of `ReadShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """A part of `ReadShareGroupStateRequest`."""

    partition: Int32
    leader_epoch: Int32


@message(api=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse(Message):
    """The message `ReadShareGroupStateResponse`."""

    results: list[ReadStateResult] = []


class ReadStateResult(Message):
    """A part of `ReadShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """A part of `ReadShareGroupStateResponse`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Message):
    """A part of `ReadShareGroupStateResponse`."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
