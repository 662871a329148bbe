"""One step of a member towards its target.

A partition goes from one member to another in three beats: the first is told to give it up, it
says in a heartbeat that it has, and only then may the second be told to take it. A member keeps its
old epoch while it has something to give up, so that it can still commit for that; it takes the
epoch of the target as soon as it has given everything up, even if others still hold what it is
waiting for.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from headwater.errors import ApiError, ErrorCode
from headwater.groups.consumer.assignment import Partitions
from headwater.groups.consumer.member import Held, Member, MemberState


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a member should get, and what it says it holds (None if it did not say)."""

    epoch: int
    partitions: Partitions
    topics: Set[bytes]
    owned: Partitions | None
    subscription_changed: bool
    # Is a partition held by any member, or still to be given up by one?
    is_held: Callable[[bytes, int], bool]


def reconciled(member: Member, goal: Goal) -> Member:
    """The member after this step; itself if there is nothing to do."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.epoch:
                return _towards(member, goal, member.epoch)
            return _without_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNREVOKED:
            if not _still_owns(goal, member.revoking):
                return _towards(member, goal, member.epoch)
            return _without_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNRELEASED:
            return _towards(member, goal, member.epoch)
        case MemberState.UNKNOWN:
            if goal.owned is None or goal.owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _towards(member, goal, goal.epoch)


def _still_owns(goal: Goal, revoking: Held) -> bool:
    """Does the member hold any of these, as far as it has told?"""
    if goal.owned is None:
        return True
    return any(
        partition in revoking[topic]
        for topic, partitions in goal.owned.items()
        if topic in revoking
        for partition in partitions
    )


def _towards(member: Member, goal: Goal, epoch: int) -> Member:
    keep: dict[bytes, dict[int, int]] = {}
    revoke: dict[bytes, dict[int, int]] = {}
    for topic, held in member.assigned.items():
        wanted = goal.partitions.get(topic, frozenset()) if topic in goal.topics else frozenset()
        kept = {partition: at for partition, at in held.items() if partition in wanted}
        if kept:
            keep[topic] = kept
        if len(kept) < len(held):
            revoke[topic] = {one: at for one, at in held.items() if one not in kept}
    if revoke and _still_owns(goal, revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=keep,
            revoking=revoke,
        )

    waits = False
    for topic, wanted in goal.partitions.items():
        if topic not in goal.topics:
            continue
        own = member.revoking.get(topic, {})
        for partition in sorted(wanted.difference(keep.get(topic, ()))):
            # What it was giving up itself is not in anyone's way.
            if partition not in own and goal.is_held(topic, partition):
                waits = True
            else:
                keep.setdefault(topic, {})[partition] = goal.epoch
    return replace(
        member,
        state=MemberState.UNRELEASED if waits else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=keep,
        revoking={},
    )


def _without_unsubscribed(member: Member, goal: Goal) -> Member:
    """At once give up what is not subscribed to any more, whatever the target still says."""
    dropped = {topic: held for topic, held in member.assigned.items() if topic not in goal.topics}
    if not dropped:
        return member
    keep = {topic: held for topic, held in member.assigned.items() if topic in goal.topics}
    revoke = {
        topic: {**member.revoking.get(topic, {}), **dropped.get(topic, {})}
        for topic in (*member.revoking, *dropped)
    }
    if _still_owns(goal, revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            previous_epoch=member.epoch,
            assigned=keep,
            revoking=revoke,
        )
    return replace(member, previous_epoch=member.epoch, assigned=keep)
