"""DeleteShareGroupState (key 86)."""

from __future__ import annotations

from headwater.protocol.schema import ZERO_UUID, Int16, Int32, Message, Uuid, message


@message(api=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateRequest(Message):
    """The message `DeleteShareGroupStateRequest`."""

    group_id: str
    topics: list[DeleteStateData] = []


class DeleteStateData(Message):
    """A part of `DeleteShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """A part of `DeleteShareGroupStateRequest`."""

    partition: Int32


@message(api=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse(Message):
    """The message `DeleteShareGroupStateResponse`."""

    results: list[DeleteStateResult] = []


class DeleteStateResult(Message):
    """A part of `DeleteShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """A part of `DeleteShareGroupStateResponse`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
