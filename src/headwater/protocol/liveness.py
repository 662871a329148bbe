"""Liveness of group members: what a coordinator knows beyond the fields of Kafka's responses.

No field of the protocol says which members a group waits for, or how long each has been silent. A
client that puts the tag `LIVENESS_TAG` into a describe request gets it with every member, under the
same tag. A client that does not, like every client of Kafka, sees the plain response; a node that
does not know the tag ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headwater.protocol.messages.consumer_group_describe import Member
    from headwater.protocol.messages.describe_groups import DescribedGroupMember

LIVENESS_TAG = 10_000

_LAYOUT = Struct(">?qi")
_NOT_COUNTED = -1


class MemberLiveness(NamedTuple):
    """A member's liveness: if the group waits for it, and how long it has been silent."""

    is_awaited: bool
    silent_ms: int | None  # None: no session runs, because a request of the member waits here
    session_timeout_ms: int


def asks_for_liveness() -> dict[int, bytes]:
    """Returns the tags of a request."""
    return {LIVENESS_TAG: b""}


def write_liveness(liveness: MemberLiveness) -> dict[int, bytes]:
    """Returns the tags of a member."""
    silent_ms = _NOT_COUNTED if liveness.silent_ms is None else liveness.silent_ms
    return {LIVENESS_TAG: _LAYOUT.pack(liveness.is_awaited, silent_ms, liveness.session_timeout_ms)}


def add_liveness(
    members: Iterable[DescribedGroupMember | Member], liveness: Mapping[str, MemberLiveness]
) -> None:
    """Adds tags to the members of a response."""
    for member in members:
        if member.member_id in liveness:
            member.unknown_tags = write_liveness(liveness[member.member_id])


def read_liveness(tags: dict[int, bytes] | None) -> MemberLiveness | None:
    data = tags.get(LIVENESS_TAG) if tags else None
    if data is None or len(data) < _LAYOUT.size:
        return None
    is_awaited, silent_ms, session_timeout_ms = _LAYOUT.unpack_from(data)
    return MemberLiveness(
        is_awaited, None if silent_ms == _NOT_COUNTED else silent_ms, session_timeout_ms
    )
