"""Leaving a classic group."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since, until


@message(api=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest(Message):
    """These members leave."""

    group_id: str
    member_id: Annotated[str, until(2)] = ""
    members: Annotated[list[MemberIdentity], since(3)] = []


class MemberIdentity(Message):
    """One of the `members` of `LeaveGroupRequest`."""

    member_id: str
    group_instance_id: str | None = None
    reason: Annotated[str | None, since(5), ignorable] = None


@message(api=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse(Message):
    """The outcome for each member."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], since(3)] = []


class MemberResponse(Message):
    """One of the `members` of `LeaveGroupResponse`."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: Int16 = 0
