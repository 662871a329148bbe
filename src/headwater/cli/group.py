"""`headwater group`: who reads what and how far behind they are; resetting and deleting groups.

Asks any cluster that speaks Kafka's protocol, ours or Apache Kafka's.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from headwater.cli.actions import add_actions
from headwater.cli.cluster_options import add_cluster_options, one_line, open_admin
from headwater.cli.errors import FAILED
from headwater.cli.output import add_output_option, print_json, print_outcome, print_table

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import Group
    from headwater.client.errors import ClientError

_EXAMPLES = """\
examples:
  headwater group list --state Stable
  headwater group describe billing                        who reads what, and how far behind
  headwater group reset billing --all-topics --to-earliest            shows what would change
  headwater group reset billing --topic orders:0,1 --shift -100 --execute
  headwater group reset billing --topic orders --to-time 2026-03-01T08:00 --execute
  headwater group delete billing
"""


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("list", "show the groups of the cluster", _define_list),
            ("describe", "show how far a group has read, its members, what ails it", _define_one),
            ("reset", "move the committed offsets of a group that has no members", _define_reset),
            ("delete", "delete groups that have no members, with their offsets", _define_delete),
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
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_list)


def _define_one(action: ArgumentParser) -> None:
    action.add_argument("group", metavar="GROUP")
    action.add_argument("--state", action="store_true", help="only its state")
    action.add_argument("--members", action="store_true", help="only its members")
    action.add_argument("--offsets", action="store_true", help="only its offsets and its lag")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_describe)


def _define_reset(action: ArgumentParser) -> None:
    from headwater.cli.group_reset import define

    define(action)
    add_cluster_options(action)
    add_output_option(action)


def _define_delete(action: ArgumentParser) -> None:
    action.add_argument("groups", metavar="GROUP", nargs="+")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_delete)


def _list(options: Namespace) -> int:
    with open_admin(options) as admin:
        groups = admin.list_groups(states=options.state, types=options.type)
    if not groups and options.output == "text":
        print("no groups")
        return 0
    rows = [
        (each.id, *(word or "-" for word in (each.type, each.state, each.protocol_type)))
        for each in groups
    ]
    print_table(("group", "type", "state", "protocol"), rows, output=options.output)
    return 0


def _describe(options: Namespace) -> int:
    from headwater.cli.group_describe import describe

    with open_admin(options) as admin:
        describe(admin, options)
    return 0


def _delete(options: Namespace) -> int:
    with open_admin(options) as admin:
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


def _what_came_of_it(admin: Admin, group_id: str, error: ClientError | None) -> str:
    from headwater.client.errors import GroupNotEmpty, GroupNotFound

    match error:
        case None:
            return "deleted"
        case GroupNotFound():
            return "there is no such group"
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
    return f"{count} member{'s are' if count != 1 else ' is'} in it{who}"
