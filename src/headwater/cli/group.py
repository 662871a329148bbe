"""`headwater group`: lists, describes, resets and deletes consumer groups."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.cli.arguments import read_partitions
from headwater.cli.connection import add_cluster_options, one_line, open_admin
from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import add_output_option, plural, print_json, print_outcome, print_table
from headwater.cli.parser import add_actions
from headwater.cli.watch import add_watch_options, watch

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import Group
    from headwater.client.errors import ClientError
    from headwater.model import TopicPartition

_EXAMPLES = """\
examples:
  headwater group list --state Stable
  headwater group describe billing                        members, offsets and lag
  headwater group describe billing --watch                again every two seconds
  headwater group reset billing --all-topics --to-earliest            shows what would change
  headwater group reset billing --topic orders:0,1 --shift -100 --execute
  headwater group reset billing --topic orders --to-time 2026-03-01T08:00 --execute
  headwater group offsets delete billing --topic old-orders           shows what would be deleted
  headwater group delete billing                                      shows what would be deleted
  headwater group delete billing --yes
"""


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("list", "list the groups of the cluster", _define_list),
            ("describe", "show the state, the lag and the members of a group", _define_one),
            ("reset", "move the committed offsets of a group without members", _define_reset),
            ("offsets", "delete committed offsets of a group", _define_offsets),
            ("delete", "delete groups without members, with their offsets", _define_delete),
        ),
        examples=_EXAMPLES,
    )


def _define_list(action: ArgumentParser) -> None:
    action.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only groups in this state: Stable, Empty, PreparingRebalance, Reconciling ...",
    )
    action.add_argument(
        "--type",
        action="append",
        default=[],
        metavar="TYPE",
        help="only groups of this type: classic, consumer ...",
    )
    _define_view(action, _list)


def _define_one(action: ArgumentParser) -> None:
    action.add_argument("group", metavar="GROUP")
    action.add_argument("--state", action="store_true", help="show only its state")
    action.add_argument("--members", action="store_true", help="show only its members")
    action.add_argument("--offsets", action="store_true", help="show only its offsets and lag")
    _define_view(action, _describe)


def _define_view(action: ArgumentParser, show: Callable[[Namespace], int]) -> None:
    add_watch_options(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=lambda options: watch(options, lambda: show(options)))


def _define_reset(action: ArgumentParser) -> None:
    from headwater.cli.group_reset import define

    define(action)
    add_cluster_options(action)
    add_output_option(action)


def _define_delete(action: ArgumentParser) -> None:
    action.add_argument("groups", metavar="GROUP", nargs="+")
    _finish_deletion(action, _delete)


def _define_offsets(action: ArgumentParser) -> None:
    add_actions(
        action,
        (("delete", "delete committed offsets of topics that no member reads", _offsets_delete),),
        examples=str(action.epilog),
    )


def _offsets_delete(action: ArgumentParser) -> None:
    action.add_argument("group", metavar="GROUP")
    action.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:P,...]",
        help="a topic, or some of its partitions; may be repeated",
    )
    _finish_deletion(action, _delete_offsets)


def _finish_deletion(action: ArgumentParser, run: Callable[[Namespace], int]) -> None:
    action.add_argument(
        "--yes",
        "--execute",
        action="store_true",
        help="do it; without this only what would be deleted is shown",
    )
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=run)


def _list(options: Namespace) -> int:
    with open_admin(options) as admin:
        groups = admin.list_groups(states=options.state, types=options.type)
    if not groups and options.output == "text":
        print("no groups")
        return 0
    rows = [
        (each.id, each.type or None, each.state or None, each.protocol_type or None)
        for each in groups
    ]
    print_table(("group", "type", "state", "protocol"), rows, output=options.output)
    return 0


def _describe(options: Namespace) -> int:
    from headwater.cli.group_describe import describe

    with open_admin(options) as admin:
        describe(admin, options)
    return 0


# delete


def _delete(options: Namespace) -> int:
    with open_admin(options) as admin:
        if not options.yes:
            return _preview_delete(admin, options)
        results = [
            (group_id, error is None, _what_came_of_it(admin, group_id, error))
            for group_id, error in admin.delete_groups(options.groups).items()
        ]
    if options.output == "json":
        print_json(
            [
                {"group": group_id, "deleted": deleted, "reason": None if deleted else what}
                for group_id, deleted, what in results
            ]
        )
    else:
        for group_id, deleted, what in results:
            print_outcome(f"{group_id}: {what}", is_done=deleted)
    return 0 if all(deleted for _, deleted, _ in results) else FAILED


def _preview_delete(admin: Admin, options: Namespace) -> int:
    from headwater.cli.group_describe import require_group

    groups = [require_group(admin, group_id) for group_id in options.groups]
    committed = [len(admin.group_offsets(each.id)) for each in groups]
    rows = [
        {
            "group": each.id,
            "deleted": False,
            "state": each.state,
            "members": len(each.members),
            "offsets": count,
        }
        for each, count in zip(groups, committed, strict=True)
    ]
    if options.output == "json":
        print_json(rows)
        return 0
    columns = ("group", "state", "members", "offsets")
    print_table(columns, [[row[name] for name in columns] for row in rows], output="text")
    print("\nnothing has changed yet: --yes deletes them for good")
    for each in groups:
        if not each.is_empty:
            print(f"stop the members of {each.id} first: {who_is_in(each)}")
    return 0


def _what_came_of_it(admin: Admin, group_id: str, error: ClientError | None) -> str:
    from headwater.client.errors import GroupNotEmpty, GroupNotFound

    match error:
        case None:
            return "deleted"
        case GroupNotFound():
            return "not found"
        case GroupNotEmpty():
            return f"not deleted: {_who_is_in(admin, group_id)}"
        case _:
            return one_line(error)


def _who_is_in(admin: Admin, group_id: str) -> str:
    from headwater.cli.group_describe import find_group

    group = find_group(admin, group_id)
    return who_is_in(group) if group is not None else "it has members"


def who_is_in(group: Group) -> str:
    from headwater.cli.group_describe import names

    count = len(group.members)
    who = f": {names(group.members)}" if count else ""
    return f"it has {plural(count, 'member')}{who}"


# offsets delete


def _delete_offsets(options: Namespace) -> int:
    chosen = [read_partitions(text, "--topic") for text in options.topic]
    with open_admin(options) as admin:
        committed = {
            where: each.offset for where, each in admin.group_offsets(options.group).items()
        }
        partitions = _committed_in(committed, chosen, options.group)
        done: Mapping[TopicPartition, ClientError | None] = {}
        if options.yes:
            done = admin.delete_group_offsets(options.group, partitions)
    rows = [
        {
            "topic": where.topic,
            "partition": where.partition,
            "committed": committed[where],
            "deleted": options.yes and done[where] is None,
            "reason": _refusal(done.get(where)),
        }
        for where in partitions
    ]
    failed = [row for row in rows if row["reason"] is not None]
    if options.output == "json":
        print_json({"group": options.group, "executed": options.yes, "partitions": rows})
    elif options.yes:
        for row in failed:
            print_outcome(f"{row['topic']}-{row['partition']}: {row['reason']}", is_done=False)
        print(f"done: {plural(len(rows) - len(failed), 'offset')} of {options.group} deleted")
    else:
        columns = ("topic", "partition", "committed")
        print_table(columns, [[row[name] for name in columns] for row in rows], output="text")
        print("\nnothing has changed yet: --yes deletes these offsets for good")
    return FAILED if failed else 0


def _committed_in(
    committed: Mapping[TopicPartition, int],
    chosen: Sequence[tuple[str, tuple[int, ...] | None]],
    group_id: str,
) -> list[TopicPartition]:
    """The partitions that were named and have an offset; a topic without any ends the command."""
    found: set[TopicPartition] = set()
    for topic, numbers in chosen:
        matching = {
            each
            for each in committed
            if each.topic == topic and (numbers is None or each.partition in numbers)
        }
        missing = set(numbers or ()) - {each.partition for each in matching}
        if missing or not matching:
            where = f"partition {topic}:{min(missing)}" if missing else f"topic {topic}"
            raise CommandError(
                f"group {group_id} has no committed offset in {where}",
                then=f"`headwater group describe {group_id} --offsets` shows its offsets",
            )
        found |= matching
    return sorted(found)


def _refusal(error: ClientError | None) -> str | None:
    from headwater.errors import ErrorCode

    if error is not None and error.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "not deleted: a member of the group reads this topic"
    return None if error is None else one_line(error)
