"""InitializeShareGroupState (key 83)."""

from __future__ import annotations

from headwater.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Uuid, message


@message(api=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateRequest(Message):
    """The message `InitializeShareGroupStateRequest`."""

    group_id: str
    topics: list[InitializeStateData] = []


class InitializeStateData(Message):
    """A part of `InitializeShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """A part of `InitializeShareGroupStateRequest`."""

    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@message(api=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse(Message):
    """The message `InitializeShareGroupStateResponse`."""

    results: list[InitializeStateResult] = []


class InitializeStateResult(Message):
    """A part of `InitializeShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """A part of `InitializeShareGroupStateResponse`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
