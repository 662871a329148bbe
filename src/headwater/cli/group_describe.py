"""`headwater group describe`: state, offsets with their lag, and members of one group."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli.group_doctor import why_not_stable
from headwater.cli.group_lag import Lag, committed_offsets, lags
from headwater.cli.group_view import Group, Member, partitions_text, require_group
from headwater.cli.output import print_fields, print_json, print_table

if TYPE_CHECKING:
    from headwater.blocking import Admin


def describe(admin: Admin, options: Namespace) -> None:
    group = require_group(admin, options.group)
    chosen = {name for name in ("state", "offsets", "members") if getattr(options, name)}
    shown = chosen or {"state", "offsets", "members"}
    behind: list[Lag] = []
    if "offsets" in shown:
        read = {each for member in group.members for each in member.assigned}
        behind = lags(admin, committed_offsets(admin, group.id), also=read)
    if options.output == "json":
        print_json(_as_json(group, behind, shown))
        return
    sections: list[Callable[[], None]] = []
    if "state" in shown:
        sections.append(lambda: print_fields(_fields(group, behind), output="text"))
    if "offsets" in shown:
        sections.append(lambda: _print_offsets(group, behind))
    if "members" in shown:
        sections.append(lambda: _print_members(group))
    for number, show in enumerate(sections):
        if number:
            print()
        show()


def _fields(group: Group, behind: Sequence[Lag]) -> dict[str, object]:
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
    if behind:
        fields["lag"] = _lag_text(behind)
    return fields


def _lag_text(behind: Sequence[Lag]) -> str:
    records, seconds = _lag_of_all(behind)
    if records is None:
        return "unknown"
    told = f"{records} records, {seconds_text(seconds or 0.0)}"
    unknown = sum(each.records is None for each in behind)
    if not unknown:
        return told
    return f"{told}; unknown for {unknown} partition{'' if unknown == 1 else 's'}"


def _lag_of_all(behind: Sequence[Lag]) -> tuple[int | None, float | None]:
    """All records together, and the seconds of the partition that is furthest behind, as far as
    they are known; None where nothing is, for a group that has not committed may have all to read.
    """
    known = [each for each in behind if each.records is not None]
    if behind and not known:
        return None, None
    records = sum(each.records or 0 for each in known)
    return records, max((each.seconds or 0.0 for each in known), default=0.0)


def _print_offsets(group: Group, behind: Sequence[Lag]) -> None:
    if not behind:
        print("no offsets are committed")
        return
    rows = []
    for each in behind:
        owner = group.owner(each.partition)
        rows.append(
            (
                each.partition.topic,
                each.partition.partition,
                _or_dash(each.committed),
                _or_dash(each.end),
                _or_dash(each.records),
                "-" if each.seconds is None else seconds_text(each.seconds),
                owner.name if owner else "-",
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
            each.client_id or "-",
            each.host.lstrip("/"),
            each.instance_id or "-",
            each.id,
            partitions_text(each.assigned) or "-",
        ]
        if has_epochs:
            row.insert(4, _or_dash(each.epoch))
        rows.append(row)
    print_table(columns, rows, output="text")


def _or_dash(value: int | None) -> object:
    return "-" if value is None else value


def seconds_text(seconds: float) -> str:
    """As a person says it: 0.4 s, 12 s, 5 min, 3.2 h, 2.5 d."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds else "0 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} d"


def _as_json(group: Group, behind: Sequence[Lag], shown: set[str]) -> dict[str, Any]:
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
        result["lag_records"], result["lag_seconds"] = _lag_of_all(behind)
        result["offsets"] = [_lag_as_json(group, each) for each in behind]
    if "members" in shown:
        result["members"] = [_member_as_json(each) for each in group.members]
    return result


def _lag_as_json(group: Group, lag: Lag) -> dict[str, Any]:
    owner = group.owner(lag.partition)
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
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
