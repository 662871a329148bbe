"""Reading the state of share partitions."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, Uuid, message


@message(api=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateRequest(Message):
    """Asks for the state of share partitions."""

    group_id: str
    topics: list[ReadStateData] = []


class ReadStateData(Message):
    """One of the `topics` of `ReadShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """One of the `partitions` of `ReadStateData`."""

    partition: Int32
    leader_epoch: Int32


@message(api=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse(Message):
    """The state: what has been delivered, and how often."""

    results: list[ReadStateResult] = []


class ReadStateResult(Message):
    """One of the `results` of `ReadShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """One of the `partitions` of `ReadStateResult`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Message):
    """A range of offsets in the same state."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
