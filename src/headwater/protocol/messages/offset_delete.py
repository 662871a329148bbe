"""OffsetDelete (key 47)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message


@message(api=47, versions=(0, 0), flexible=None)
class OffsetDeleteRequest(Message):
    """The message `OffsetDeleteRequest`."""

    group_id: str
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteRequestTopic(Message):
    """A part of `OffsetDeleteRequest`."""

    name: str
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequestPartition(Message):
    """A part of `OffsetDeleteRequest`."""

    partition_index: Int32


@message(api=47, versions=(0, 0), flexible=None)
class OffsetDeleteResponse(Message):
    """The message `OffsetDeleteResponse`."""

    error_code: Int16 = 0
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[OffsetDeleteResponseTopic] = []


class OffsetDeleteResponseTopic(Message):
    """A part of `OffsetDeleteResponse`."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponsePartition(Message):
    """A part of `OffsetDeleteResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
