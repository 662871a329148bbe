"""Signs of life: what a coordinator knows of members beyond what Kafka's answers have room for.

Who has not joined yet and who has not been heard for long is in no field of the protocol. A client
that puts the tag `SIGNS_TAG` into a describe request gets it with every member, under the same tag.
Whoever does not ask, as every client of Kafka, sees the plain answer; a node that does not know the
tag ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headwater.protocol.messages.consumer_group_describe import Member
    from headwater.protocol.messages.describe_groups import DescribedGroupMember

SIGNS_TAG = 10_000

_LAYOUT = Struct(">?qi")
_NOT_COUNTED = -1


class Signs(NamedTuple):
    """Of one member: whether the group waits for it, and how long it has been silent."""

    is_awaited: bool
    silent_ms: int | None  # None: it need not show itself, for a request of its own waits here
    session_timeout_ms: int


def asks_for_signs() -> dict[int, bytes]:
    """The tags of a request."""
    return {SIGNS_TAG: b""}


def write_signs(signs: Signs) -> dict[int, bytes]:
    """The tags of a member."""
    silent_ms = _NOT_COUNTED if signs.silent_ms is None else signs.silent_ms
    return {SIGNS_TAG: _LAYOUT.pack(signs.is_awaited, silent_ms, signs.session_timeout_ms)}


def add_signs(members: Iterable[DescribedGroupMember | Member], signs: Mapping[str, Signs]) -> None:
    """Puts them with the members of an answer."""
    for member in members:
        if member.member_id in signs:
            member.unknown_tags = write_signs(signs[member.member_id])


def read_signs(tags: dict[int, bytes] | None) -> Signs | None:
    data = tags.get(SIGNS_TAG) if tags else None
    if data is None or len(data) < _LAYOUT.size:
        return None
    is_awaited, silent_ms, session_timeout_ms = _LAYOUT.unpack_from(data)
    return Signs(is_awaited, None if silent_ms == _NOT_COUNTED else silent_ms, session_timeout_ms)
