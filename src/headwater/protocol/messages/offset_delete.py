"""Forgetting offsets of a group."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message


@message(api=47, versions=(0, 0), flexible=None)
class OffsetDeleteRequest(Message):
    """Forget how far the group has read these partitions."""

    group_id: str
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteRequestTopic(Message):
    """One of the `topics` of `OffsetDeleteRequest`."""

    name: str
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequestPartition(Message):
    """One of the `partitions` of `OffsetDeleteRequestTopic`."""

    partition_index: Int32


@message(api=47, versions=(0, 0), flexible=None)
class OffsetDeleteResponse(Message):
    """The outcome for each partition."""

    error_code: Int16 = 0
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[OffsetDeleteResponseTopic] = []


class OffsetDeleteResponseTopic(Message):
    """One of the `topics` of `OffsetDeleteResponse`."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponsePartition(Message):
    """One of the `partitions` of `OffsetDeleteResponseTopic`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
