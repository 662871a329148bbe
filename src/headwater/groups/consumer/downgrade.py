"""From a consumer group back to a classic one, when its last member of the new kind has gone."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from headwater.groups.consumer.member import Member
from headwater.groups.consumer.records import group_tombstones
from headwater.groups.consumer.state import GroupState
from headwater.groups.consumer.topics import Topics
from headwater.groups.decision import Record
from headwater.groups.settings import GroupSettings
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import PROTOCOL_TYPE, version_of, write_assignment
from headwater.protocol.records.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)


class Downgraded(NamedTuple):
    """What the classic group must know that is not in its record."""

    # Somebody left, or the members' assignments are not the newest.
    rebalances: bool


def may_downgrade(
    state: GroupState,
    settings: GroupSettings,
    *,
    leaving: Collection[Member] = (),
    replaced: Member | None = None,
) -> bool:
    """Is this the last that is not classic, and may the group follow the others back?"""
    if replaced is not None:
        left = len(state.members)
        all_classic = replaced.classic is None and state.classic_members == left - 1
    else:
        left = len(state.members) - len(leaving)
        gone = sum(member.classic is not None for member in leaving)
        all_classic = state.classic_members - gone == left
    return (
        all_classic
        and left > 0
        and settings.consumer_migration_policy in ("bidirectional", "downgrade")
        and left <= settings.group_size_max
    )


def downgrade_records(
    state: GroupState,
    topics: Topics,
    leaving: frozenset[str],
    joining: Member | None,
    *,
    now_ms: int,
) -> list[Record]:
    """The end of the consumer group, and the classic one with the targets as its assignments.

    `joining` is a static member that takes the place of the last one of the new kind; what it did
    so far in this turn has been written under its own id.
    """
    replaced = state.static_member(joining.instance_id) if joining is not None else None
    members: list[tuple[Member, str]] = []  # each with the id that its target is kept under
    ids: list[str] = []
    for member in state.members.values():
        if replaced is not None and joining is not None and member.id == replaced.id:
            ids.append(joining.id)
            continue
        ids.append(member.id)
        if member.id not in leaving:
            members.append((member, member.id))
    if replaced is not None and joining is not None:
        members.append((joining, replaced.id))  # the last, so that it does not lead
    protocol = _protocol([member for member, _ in members])
    written = [
        _classic_member(member, protocol, _assignment(state, topics, member, target_id, protocol))
        for member, target_id in members
    ]
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=state.epoch,
        protocol=protocol,
        leader=written[0].member_id,
        current_state_timestamp=now_ms,
        members=written,
    )
    return [
        *group_tombstones(state.id, ids, state.resolved),
        Record(GroupMetadataKey(group=state.id), value),
    ]


def _protocol(members: list[Member]) -> str:
    """The protocol that most of them like best, among those that all of them know."""
    spoken = [member.classic.protocols for member in members if member.classic is not None]
    assert len(spoken) == len(members), "a member that is not classic"
    shared = set.intersection(*({name for name, _ in protocols} for protocols in spoken))
    votes: dict[str, int] = {}
    for protocols in spoken:
        best = next(name for name, _ in protocols if name in shared)
        votes[best] = votes.get(best, 0) + 1
    return max(votes, key=votes.__getitem__)


def _metadata(member: Member, protocol: str) -> bytes:
    assert member.classic is not None
    return dict(member.classic.protocols)[protocol]


def _assignment(
    state: GroupState, topics: Topics, member: Member, target_id: str, protocol: str
) -> bytes:
    try:
        version = version_of(_metadata(member, protocol))
    except DecodeError:
        version = 0  # nobody could join with this
    return write_assignment(topics.by_name(state.target.get(target_id, {})), version=version)


def _classic_member(member: Member, protocol: str, assignment: bytes) -> MemberMetadata:
    assert member.classic is not None
    return MemberMetadata(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.classic.session_timeout_ms,
        subscription=_metadata(member, protocol),
        assignment=assignment,
    )
