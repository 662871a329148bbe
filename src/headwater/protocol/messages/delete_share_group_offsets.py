"""DeleteShareGroupOffsets (key 92)."""

from __future__ import annotations

from headwater.protocol.schema import ZERO_UUID, Int16, Int32, Message, Uuid, message


@message(api=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest(Message):
    """The message `DeleteShareGroupOffsetsRequest`."""

    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsRequestTopic(Message):
    """A part of `DeleteShareGroupOffsetsRequest`."""

    topic_name: str


@message(api=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse(Message):
    """The message `DeleteShareGroupOffsetsResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Message):
    """A part of `DeleteShareGroupOffsetsResponse`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: str | None = None
