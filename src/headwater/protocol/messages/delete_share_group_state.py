"""Deleting the state of share partitions."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Message, Uuid, message


@message(api=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateRequest(Message):
    """Forget these partitions."""

    group_id: str
    topics: list[DeleteStateData] = []


class DeleteStateData(Message):
    """One of the `topics` of `DeleteShareGroupStateRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """One of the `partitions` of `DeleteStateData`."""

    partition: Int32


@message(api=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse(Message):
    """The outcome for each partition."""

    results: list[DeleteStateResult] = []


class DeleteStateResult(Message):
    """One of the `results` of `DeleteShareGroupStateResponse`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """One of the `partitions` of `DeleteStateResult`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
