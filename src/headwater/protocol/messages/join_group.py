"""Entering a classic group, or its next generation."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, nullable, since


@message(api=11, versions=(0, 9), flexible=6)
class JoinGroupRequest(Message):
    """Joins a group, with the protocols that the member supports."""

    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, since(1), ignorable] = -1
    member_id: str
    group_instance_id: Annotated[str | None, since(5)] = None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[str | None, since(8), ignorable] = None


class JoinGroupRequestProtocol(Message):
    """One of the `protocols` of `JoinGroupRequest`."""

    name: str
    metadata: bytes


@message(api=11, versions=(0, 9), flexible=6)
class JoinGroupResponse(Message):
    """The generation that was formed; its leader also learns who is in it."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[str | None, since(7), ignorable] = None
    protocol_name: Annotated[str | None, nullable(7)] = ""
    leader: str = ""
    skip_assignment: Annotated[bool, since(9)] = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


class JoinGroupResponseMember(Message):
    """One of the `members` of `JoinGroupResponse`."""

    member_id: str = ""
    group_instance_id: Annotated[str | None, since(5), ignorable] = None
    metadata: bytes = b""
