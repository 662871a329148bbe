"""Starting the state of share partitions."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Int64, Message, Uuid, message


@message(api=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateRequest(Message):
    """Start at these offsets."""

    group_id: str
    topics: list[InitializeStateData] = []


class InitializeStateData(Message):
    """One of the `topics` of `InitializeShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """One of the `partitions` of `InitializeStateData`."""

    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@message(api=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse(Message):
    """The outcome for each partition."""

    results: list[InitializeStateResult] = []


class InitializeStateResult(Message):
    """One of the `results` of `InitializeShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """One of the `partitions` of `InitializeStateResult`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
