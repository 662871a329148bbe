"""Staying in a classic group."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since


@message(api=12, versions=(0, 4), flexible=4)
class HeartbeatRequest(Message):
    """Keeps a member's session alive."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3)] = None


@message(api=12, versions=(0, 4), flexible=4)
class HeartbeatResponse(Message):
    """The outcome; an error if the member has to rejoin."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
