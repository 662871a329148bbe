"""Handing out the assignment of a classic group."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since


@message(api=14, versions=(0, 5), flexible=4)
class SyncGroupRequest(Message):
    """Asks for the member's assignment; the leader sends everyone's."""

    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: Annotated[str | None, since(3)] = None
    protocol_type: Annotated[str | None, since(5), ignorable] = None
    protocol_name: Annotated[str | None, since(5), ignorable] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupRequestAssignment(Message):
    """One of the `assignments` of `SyncGroupRequest`."""

    member_id: str
    assignment: bytes


@message(api=14, versions=(0, 5), flexible=4)
class SyncGroupResponse(Message):
    """The member's part."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[str | None, since(5), ignorable] = None
    protocol_name: Annotated[str | None, since(5), ignorable] = None
    assignment: bytes = b""
