"""`headwater group describe`: state, offsets with their lag, and members of one group.

A group that is not Stable is explained in one sentence. Headwater reports which members a group
waits for and how long they have been silent. Kafka does not: it reports only that a classic group
rebalances, and which epoch each member of a consumer group has reached. The sentence says what can
be known, and what to look at.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli.errors import CommandError
from headwater.cli.output import print_fields, print_json, print_table
from headwater.client.admin import Group, Member, PartitionLag
from headwater.client.errors import GroupNotFound
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.blocking import Admin

Lags = Mapping[TopicPartition, PartitionLag]

_NAMED_MAX = 3
_NONE: frozenset[TopicPartition] = frozenset()
# Members are told to send a heartbeat every 5 s, and classic ones every 3 s.
_LATE_SECONDS = 6.0


def find_group(admin: Admin, group_id: str) -> Group | None:
    """Returns the group, whatever its type, or None if it does not exist."""
    try:
        return admin.describe_group(group_id)
    except GroupNotFound:
        return None


def require_group(admin: Admin, group_id: str) -> Group:
    group = find_group(admin, group_id)
    if group is None:
        raise CommandError(
            f"there is no group {group_id}", then="`headwater group list` shows the groups"
        )
    return group


def describe(admin: Admin, options: Namespace) -> None:
    group = require_group(admin, options.group)
    chosen = {name for name in ("state", "offsets", "members") if getattr(options, name)}
    shown = chosen or {"state", "offsets", "members"}
    lags: Lags = {}
    if "offsets" in shown:
        read = {each for member in group.members for each in member.assigned}
        lags = admin.group_lag(group.id, partitions=read)
    if options.output == "json":
        print_json(_as_json(group, lags, shown))
        return
    sections: list[Callable[[], None]] = []
    if "state" in shown:
        sections.append(lambda: print_fields(_fields(group, lags), output="text"))
    if "offsets" in shown:
        sections.append(lambda: _print_offsets(group, lags))
    if "members" in shown:
        sections.append(lambda: _print_members(group))
    for number, show in enumerate(sections):
        if number:
            print()
        show()


def _fields(group: Group, lags: Lags) -> dict[str, object]:
    fields: dict[str, object] = {"group": group.id, "state": group.state}
    why = why_not_stable(group)
    if why is not None:
        fields["why"] = why
    fields["type"] = group.kind
    if group.epoch is not None:
        fields["epoch"] = group.epoch
    if group.assignor:
        fields["assignor"] = group.assignor
    fields["members"] = len(group.members)
    fields["coordinator"] = group.coordinator
    if lags:
        fields["lag"] = _lag_text(lags)
    return fields


def _lag_text(lags: Lags) -> str:
    """The total, as far as it is known: a person sees which partitions are missing from it."""
    known = [each for each in lags.values() if each.records is not None]
    if not known:
        return "unknown"
    seconds = max(each.seconds or 0.0 for each in known)
    text = f"{sum(each.records or 0 for each in known)} records, {seconds_text(seconds)}"
    unknown = len(lags) - len(known)
    if not unknown:
        return text
    return f"{text}; unknown for {unknown} partition{'' if unknown == 1 else 's'}"


def _totals(lags: Lags) -> tuple[int | None, float | None]:
    """The records of all partitions and the seconds of the one furthest behind. None where one of
    them is unknown, for a program would take a part for the whole."""
    records = [each.records for each in lags.values()]
    seconds = [each.seconds for each in lags.values()]
    return (
        None if not records or None in records else sum(each or 0 for each in records),
        None if not seconds or None in seconds else max(each or 0.0 for each in seconds),
    )


def _print_offsets(group: Group, lags: Lags) -> None:
    if not lags:
        print("no offsets are committed")
        return
    rows = []
    for where, each in lags.items():
        owner = group.owner(where)
        rows.append(
            (
                where.topic,
                where.partition,
                each.committed,
                each.end,
                each.records,
                None if each.seconds is None else seconds_text(each.seconds),
                owner.name if owner else None,
            )
        )
    columns = ("topic", "partition", "committed", "end", "lag", "behind", "member")
    print_table(columns, rows, output="text")


def _print_members(group: Group) -> None:
    if not group.members:
        print("no members")
        return
    columns = ["client", "host", "instance", "member", "partitions"]
    has_epochs = group.kind == "consumer"
    if has_epochs:
        columns.insert(4, "epoch")
    rows = []
    for each in group.members:
        row: list[object] = [
            each.client_id or None,
            each.host.lstrip("/"),
            each.instance_id or None,
            each.id,
            partitions_text(each.assigned) or None,
        ]
        if has_epochs:
            row.insert(4, each.epoch)
        rows.append(row)
    print_table(columns, rows, output="text")


def seconds_text(seconds: float) -> str:
    """Formats a duration: 0.4 s, 12 s, 5 min, 3.2 h, 2.5 d."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds else "0 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} d"


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Formats partitions by topic, in order: `orders:0,1 clicks:3`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items())


def _as_json(group: Group, lags: Lags, shown: set[str]) -> dict[str, Any]:
    result: dict[str, Any] = {"group": group.id}
    if "state" in shown:
        result |= {
            "state": group.state,
            "why": why_not_stable(group),
            "type": group.kind,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor": group.assignor or None,
            "coordinator": group.coordinator,
        }
    if "offsets" in shown:
        result["lag_records"], result["lag_seconds"] = _totals(lags)
        result["offsets"] = [_lag_as_json(group, *each) for each in lags.items()]
    if "members" in shown:
        result["members"] = [_member_as_json(each) for each in group.members]
    return result


def _lag_as_json(group: Group, where: TopicPartition, lag: PartitionLag) -> dict[str, Any]:
    owner = group.owner(where)
    return {
        "topic": where.topic,
        "partition": where.partition,
        "committed": lag.committed,
        "end": lag.end,
        "lag_records": lag.records,
        "lag_seconds": lag.seconds,
        "member": owner.id if owner else None,
    }


def _member_as_json(member: Member) -> dict[str, Any]:
    return {
        "member": member.id,
        "client": member.client_id,
        "host": member.host.lstrip("/"),
        "instance": member.instance_id,
        "epoch": member.epoch,
        "partitions": [
            {"topic": topic, "partition": partition} for topic, partition in sorted(member.assigned)
        ],
    }


# Why a group is not Stable


def why_not_stable(group: Group) -> str | None:
    """Returns a sentence, or None for a Stable group."""
    if group.state == "Stable":
        return None
    if not group.members:
        return "it has no members: none has joined yet, or all have left"
    if group.kind == "consumer":
        return _of_consumer_group(group)
    if group.state == "PreparingRebalance":
        return _while_members_gather(group)
    if group.state == "CompletingRebalance":
        return _while_the_leader_assigns(group)
    return f"its coordinator reports {group.state}, which this command cannot explain"


def _while_members_gather(group: Group) -> str:
    if any(member.liveness is None for member in group.members):
        return (
            f"it waits for members to rejoin, and its coordinator does not report which of "
            f"{names(group.members)}; a member that polls too slowly delays all others "
            "(max.poll.interval.ms)"
        )
    awaited = [member for member in group.members if _is_awaited(member)]
    if not awaited:
        return (
            f"{_all(group.members)} joined; its coordinator gives others a moment to join "
            "(group.initial.rebalance.delay.ms)"
        )
    return f"it waits for {names(awaited)} to rejoin: {_silence(awaited)}"


def _while_the_leader_assigns(group: Group) -> str:
    leaders = [member for member in group.members if _is_awaited(member)]
    if not leaders:
        return f"its leader, one of {names(group.members)}, has not assigned the partitions yet"
    return f"its leader {names(leaders)} has not assigned the partitions yet: {_silence(leaders)}"


def _of_consumer_group(group: Group) -> str:
    goal = group.assignment_epoch or 0
    if group.epoch is not None and group.epoch > goal:
        return (
            f"its coordinator has yet to assign partitions for epoch {group.epoch} "
            f"(the current assignment is of epoch {goal})"
        )
    late = [member for member in group.members if (member.epoch or 0) < goal]
    if late:
        return f"{_how_late(group, late, goal)}: {_silence(late)}"
    waiting = [member for member in group.members if member.assigned != member.target]
    if waiting:
        missing = {each for member in waiting for each in (member.target or _NONE)}
        missing -= {each for member in group.members for each in member.assigned}
        what = partitions_text(missing) or "partitions"
        return f"{names(waiting)} will get {what} with the next heartbeat"
    return "all members have their partitions; the next heartbeat makes it Stable"


def _how_late(group: Group, late: Sequence[Member], goal: int) -> str:
    """Names the members behind the epoch of the assignment, and the partitions they keep."""
    epochs = " and ".join(sorted({str(member.epoch) for member in late}))
    # Partitions that a late member no longer reports, and those that it still reports.
    held = {each for member in group.members for each in member.assigned}
    wanted = {each for member in group.members for each in (member.target or _NONE)}
    kept = (wanted - held) | {
        each for member in late for each in member.assigned - (member.target or _NONE)
    }
    behind = f"{names(late)} {'is' if len(late) == 1 else 'are'} at epoch {epochs} of {goal}"
    if not kept:
        return f"{behind} and must acknowledge the new assignment"
    return f"{behind} and must give up {partitions_text(kept)} first"


def _silence(members: Sequence[Member]) -> str:
    """Says what the last heartbeats of the awaited members mean."""
    liveness = [(member.liveness, member) for member in members if member.liveness is not None]
    if not liveness:
        return (
            "either it polls too slowly or is busy in a rebalance listener, or it has died and its "
            "session has not expired yet"
        )
    longest, member = max(liveness, key=lambda each: each[0].silent_ms or 0)
    silent, session = (longest.silent_ms or 0) / 1000, longest.session_timeout_ms / 1000
    heartbeat = "its heartbeat" if len(members) == 1 else f"the heartbeat of {member.name}"
    if silent > min(session / 3, _LATE_SECONDS):
        return (
            f"{heartbeat} is late: the last one came {silent:.0f} s ago, and its session expires "
            f"after {session:g} s"
        )
    return (
        f"{heartbeat} came {silent:.0f} s ago, so it is alive but polls too slowly or is busy in a "
        "rebalance listener"
    )


def _is_awaited(member: Member) -> bool:
    return member.liveness is not None and member.liveness.is_awaited


def _all(members: Sequence[Member]) -> str:
    return "its one member has" if len(members) == 1 else f"all {len(members)} members have"


def names(members: Sequence[Member]) -> str:
    """Lists the first few by name, and how many more there are."""
    named = ", ".join(member.name for member in members[:_NAMED_MAX])
    more = len(members) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
