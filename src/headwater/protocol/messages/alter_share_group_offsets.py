"""AlterShareGroupOffsets (key 91)."""

from __future__ import annotations

from headwater.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Uuid, message


@message(api=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest(Message):
    """The message `AlterShareGroupOffsetsRequest`."""

    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsRequestTopic(Message):
    """A part of `AlterShareGroupOffsetsRequest`."""

    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequestPartition(Message):
    """A part of `AlterShareGroupOffsetsRequest`."""

    partition_index: Int32
    start_offset: Int64


@message(api=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse(Message):
    """The message `AlterShareGroupOffsetsResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


class AlterShareGroupOffsetsResponseTopic(Message):
    """A part of `AlterShareGroupOffsetsResponse`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponsePartition(Message):
    """A part of `AlterShareGroupOffsetsResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
