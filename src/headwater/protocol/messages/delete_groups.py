"""Deleting empty groups."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since


@message(api=42, versions=(0, 3), flexible=2)
class DeleteGroupsRequest(Message):
    """Delete these groups."""

    groups_names: list[str] = []


@message(api=42, versions=(0, 3), flexible=2)
class DeleteGroupsResponse(Message):
    """The outcome for each group."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []


class DeletableGroupResult(Message):
    """One of the `results` of `DeleteGroupsResponse`."""

    group_id: str = ""
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(3), ignorable] = None
