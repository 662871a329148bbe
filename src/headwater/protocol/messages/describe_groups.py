"""Describing classic groups."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since


@message(api=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest(Message):
    """Describe these groups."""

    groups: list[str] = []
    include_authorized_operations: Annotated[bool, since(3)] = False


@message(api=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse(Message):
    """The groups with their members."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Message):
    """One of the `groups` of `DescribeGroupsResponse`."""

    error_code: Int16 = 0
    error_message: Annotated[str | None, since(6)] = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


class DescribedGroupMember(Message):
    """One of the `members` of `DescribedGroup`."""

    member_id: str = ""
    group_instance_id: Annotated[str | None, since(4), ignorable] = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""
