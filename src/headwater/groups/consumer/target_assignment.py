"""The target assignment of a consumer group: which member should have which partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from headwater.groups.consumer.assignors import Assignment, Assignor, Partitions, Subscriber
from headwater.groups.consumer.member import Member
from headwater.groups.consumer.state import GroupState
from headwater.groups.consumer.topics import Topics


def voted_assignor(votes: Mapping[str, int], assignors: Sequence[str]) -> str:
    """Returns the assignor that most members ask for; the first configured one in a tie."""
    return max(assignors, key=lambda name: votes.get(name, 0))


def new_target(
    state: GroupState, topics: Topics, updated: Member, assignor: Assignor, *, homogeneous: bool
) -> Mapping[str, Partitions]:
    """Returns the target assignment of the group with `updated` in it."""
    ids: dict[frozenset[str], Set[bytes]] = {}  # most members subscribe to the same topics
    members: dict[str, Subscriber] = {}
    for member in (*state.members.values(), updated):
        wanted = frozenset(state.subscribed(member))
        if wanted not in ids:
            ids[wanted] = topics.ids(wanted)
        members[member.id] = Subscriber(
            ids[wanted], state.target.get(member.id, {}), member.instance_id
        )
    before = state.instances.get(updated.instance_id) if updated.instance_id is not None else None
    if before is not None and before != updated.id:
        # A static member is back under another id, with the same place and partitions.
        members[updated.id] = Subscriber(
            members[updated.id].topics, state.target.get(before, {}), updated.instance_id
        )
        del members[before]
    partitions = topics.partitions({name for wanted in ids for name in wanted})
    answer = assignor(Assignment(members, partitions, homogeneous))
    return {member_id: answer.get(member_id, {}) for member_id in members}
