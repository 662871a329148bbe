"""Listing the groups a broker coordinates."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since


@message(api=16, versions=(0, 5), flexible=3)
class ListGroupsRequest(Message):
    """List the groups in these states and of these types."""

    states_filter: Annotated[list[str], since(4)] = []
    types_filter: Annotated[list[str], since(5)] = []


@message(api=16, versions=(0, 5), flexible=3)
class ListGroupsResponse(Message):
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


class ListedGroup(Message):
    """One of the `groups` of `ListGroupsResponse`."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: Annotated[str, since(4), ignorable] = ""
    group_type: Annotated[str, since(5), ignorable] = ""
