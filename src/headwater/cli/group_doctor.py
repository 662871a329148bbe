"""Why a group is not Stable, in one sentence.

Headwater tells which members a group waits for and how long they have been silent. Kafka does not;
of a classic group that rebalances it tells only that, of a consumer group which epoch each member
has come to. The sentence says what can be known, and what to look at.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.cli.group_view import Group, Member, partitions_text

_NAMED_MAX = 3


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
            f"{names(group.members)}; one that is long between two polls holds up all others "
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
    held = {each for member in group.members for each in member.assigned}
    wanted = {
        each
        for member in group.members
        for each in (member.target or frozenset()) - member.assigned
        if each not in held
    }
    waiting = f"; {partitions_text(wanted)} wait for that" if wanted else ""
    if late:
        epochs = ", ".join(str(member.epoch) for member in late[:_NAMED_MAX])
        return (
            f"{names(late)} stands at epoch {epochs} of {goal} and has not yet let go of what it "
            f"must give up: {_silence(late)}{waiting}"
        )
    behind = [member for member in group.members if member.assigned != member.target]
    if behind:
        return (
            f"{names(behind)} will be given partitions with the next heartbeat"
            f"{f': {partitions_text(wanted)}' if wanted else ''}"
        )
    return "all members have what they should; the next heartbeat makes it Stable"


def _silence(members: Sequence[Member]) -> str:
    """What the silence of those who are waited for says."""
    signs = [member.signs for member in members if member.signs is not None]
    if not signs:
        return (
            "it is long between two polls or in a rebalance listener, or has died and its session "
            "still runs"
        )
    longest = max(signs, key=lambda each: each.silent_ms or 0)
    silent = (longest.silent_ms or 0) / 1000
    session = longest.session_timeout_ms / 1000
    if silent > session / 3:
        return (
            f"its heartbeat is late, last heard {silent:.0f} s ago; after {session:g} s it is "
            "taken for dead"
        )
    return (
        f"its heartbeats come (the last {silent:.0f} s ago), so it lives and is long between two "
        "polls or in a rebalance listener"
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
