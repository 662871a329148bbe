"""Moving the start of a share group."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Int64, Message, Uuid, message


@message(api=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest(Message):
    """Start at these offsets."""

    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsRequestTopic(Message):
    """One of the `topics` of `AlterShareGroupOffsetsRequest`."""

    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequestPartition(Message):
    """One of the `partitions` of `AlterShareGroupOffsetsRequestTopic`."""

    partition_index: Int32
    start_offset: Int64


@message(api=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


class AlterShareGroupOffsetsResponseTopic(Message):
    """One of the `responses` of `AlterShareGroupOffsetsResponse`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_ID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponsePartition(Message):
    """One of the `partitions` of `AlterShareGroupOffsetsResponseTopic`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
