"""Forgetting topics of a share group."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Message, Uuid, message


@message(api=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest(Message):
    """Forget these topics."""

    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsRequestTopic(Message):
    """One of the `topics` of `DeleteShareGroupOffsetsRequest`."""

    topic_name: str


@message(api=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse(Message):
    """The outcome for each topic."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Message):
    """One of the `responses` of `DeleteShareGroupOffsetsResponse`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_ID
    error_code: Int16 = 0
    error_message: str | None = None
