"""Why a group is not Stable, in one sentence.

Headwater tells which members a group waits for and how long they have been silent. Kafka does not;
of a classic group that rebalances it tells only that, of a consumer group which epoch each member
has come to. The sentence says what can be known, and what to look at.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.cli.group_view import Group, Member, partitions_text
from headwater.model import TopicPartition

_NAMED_MAX = 3
_NONE: frozenset[TopicPartition] = frozenset()
# Members are told to show themselves every 5 s, and every 3 s if they are classic ones.
_LATE_SECONDS = 6.0


def why_not_stable(group: Group) -> str | None:
    """None for a group that is as it should be."""
    if group.state == "Stable":
        return None
    if not group.members:
        return "nobody is in it: no member has joined yet, or all of them have left"
    if group.kind == "consumer":
        return _of_consumer_group(group)
    if group.state == "PreparingRebalance":
        return _while_members_gather(group)
    if group.state == "CompletingRebalance":
        return _while_the_leader_assigns(group)
    return f"its coordinator calls it {group.state}, which this command cannot explain"


def _while_members_gather(group: Group) -> str:
    if any(member.signs is None for member in group.members):
        return (
            f"its coordinator waits for members to join again and does not tell for whom of "
            f"{names(group.members)}; one that polls too slowly holds up all others "
            "(max.poll.interval.ms)"
        )
    awaited = [member for member in group.members if _is_awaited(member)]
    if not awaited:
        return (
            f"{_all(group.members)} joined; its coordinator gives others a moment to come too "
            "(group.initial.rebalance.delay.ms)"
        )
    return f"it waits for {names(awaited)} to join again: {_silence(awaited)}"


def _while_the_leader_assigns(group: Group) -> str:
    leaders = [member for member in group.members if _is_awaited(member)]
    if not leaders:
        return f"its leader, one of {names(group.members)}, has not assigned the partitions yet"
    return f"its leader {names(leaders)} has not assigned the partitions yet: {_silence(leaders)}"


def _of_consumer_group(group: Group) -> str:
    goal = group.assignment_epoch or 0
    if group.epoch is not None and group.epoch > goal:
        return (
            f"its coordinator has still to assign partitions for epoch {group.epoch} "
            f"(the assignment is of epoch {goal})"
        )
    late = [member for member in group.members if (member.epoch or 0) < goal]
    if late:
        return f"{_how_late(group, late, goal)}: {_silence(late)}"
    waiting = [member for member in group.members if member.assigned != member.target]
    if waiting:
        missing = {each for member in waiting for each in (member.target or _NONE)}
        missing -= {each for member in group.members for each in member.assigned}
        what = partitions_text(missing) or "partitions"
        return f"{what} will be given to {names(waiting)} with the next heartbeat"
    return "all members have what they should; the next heartbeat makes it Stable"


def _how_late(group: Group, late: Sequence[Member], goal: int) -> str:
    """Who has not come to the epoch of the assignment, and which partitions that holds up."""
    epochs = " and ".join(sorted({str(member.epoch) for member in late}))
    # What such a member has shown already that it must give up, and what it is still seen to have.
    held = {each for member in group.members for each in member.assigned}
    wanted = {each for member in group.members for each in (member.target or _NONE)}
    kept = (wanted - held) | {
        each for member in late for each in member.assigned - (member.target or _NONE)
    }
    behind = f"{names(late)} {'is' if len(late) == 1 else 'are'} at epoch {epochs} of {goal}"
    if not kept:
        return f"{behind} and must take note of the new assignment"
    return f"{behind} and must let go of {partitions_text(kept)} before others can have it"


def _silence(members: Sequence[Member]) -> str:
    """What the silence of those who are waited for says."""
    signs = [(member.signs, member) for member in members if member.signs is not None]
    if not signs:
        return (
            "either it polls too slowly or sits in a rebalance listener, or it has died and its "
            "session still runs"
        )
    longest, member = max(signs, key=lambda each: each[0].silent_ms or 0)
    silent, session = (longest.silent_ms or 0) / 1000, longest.session_timeout_ms / 1000
    heartbeat = "its heartbeat" if len(members) == 1 else f"the heartbeat of {member.name}"
    if silent > min(session / 3, _LATE_SECONDS):
        return (
            f"{heartbeat} is late, it was last heard {silent:.0f} s ago and is taken for dead "
            f"after {session:g} s"
        )
    return (
        f"{heartbeat} came {silent:.0f} s ago, so it lives and polls too slowly or sits in a "
        "rebalance listener"
    )


def _is_awaited(member: Member) -> bool:
    return member.signs is not None and member.signs.is_awaited


def _all(members: Sequence[Member]) -> str:
    return "its one member has" if len(members) == 1 else f"all {len(members)} members have"


def names(members: Sequence[Member]) -> str:
    """The first few by name, and how many more."""
    named = ", ".join(member.name for member in members[:_NAMED_MAX])
    more = len(members) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
