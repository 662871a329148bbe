"""`headwater group`: who reads what and how far behind they are; resetting and deleting groups.

Asks any cluster that speaks Kafka's protocol, ours or Apache Kafka's.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING

from headwater.cli.connection import Cluster, add_bootstrap_option, code_name
from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import add_output_option, print_json, print_table

if TYPE_CHECKING:
    from headwater.cli.group_view import Group

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
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, summary, define_action in (
        ("list", "show the groups of the cluster", _define_list),
        ("describe", "show how far a group has read, its members, and what ails it", _define_one),
        ("reset", "move the committed offsets of a group that has no members", _define_reset),
        ("delete", "delete groups that have no members, with their offsets", _define_delete),
    ):
        action = actions.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_EXAMPLES,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        define_action(action)
        add_bootstrap_option(action)
        add_output_option(action)


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
    action.set_defaults(run=_list)


def _define_one(action: ArgumentParser) -> None:
    action.add_argument("group", metavar="GROUP")
    action.add_argument("--state", action="store_true", help="only its state")
    action.add_argument("--members", action="store_true", help="only its members")
    action.add_argument("--offsets", action="store_true", help="only its offsets and its lag")
    action.set_defaults(run=_describe)


def _define_reset(action: ArgumentParser) -> None:
    from headwater.cli.group_reset import define

    define(action)


def _define_delete(action: ArgumentParser) -> None:
    action.add_argument("groups", metavar="GROUP", nargs="+")
    action.set_defaults(run=_delete)


def _list(options: Namespace) -> int:
    from headwater.protocol.messages.list_groups import ListGroupsRequest

    states = {state.lower() for state in options.state}
    types = {kind.lower() for kind in options.type}
    rows: dict[str, tuple[str, str, str]] = {}
    with Cluster(options.bootstrap) as cluster:
        for node_id in cluster.node_ids():
            # Filtered here: older nodes cannot, and no cluster has so many that it would matter.
            answer = cluster.node(node_id).ask(ListGroupsRequest())
            if answer.error_code:
                code = code_name(answer.error_code)
                raise CommandError(f"node {node_id} does not list its groups: {code}")
            for each in answer.groups:
                if (not states or each.group_state.lower() in states) and (
                    not types or each.group_type.lower() in types
                ):
                    row = (each.group_type, each.group_state, each.protocol_type)
                    rows[each.group_id] = row
    listed = [(name, *(word or "-" for word in row)) for name, row in sorted(rows.items())]
    if not listed and options.output == "text":
        print("no groups")
        return 0
    print_table(("group", "type", "state", "protocol"), listed, output=options.output)
    return 0


def _describe(options: Namespace) -> int:
    from headwater.cli.group_describe import describe

    with Cluster(options.bootstrap) as cluster:
        describe(cluster, options)
    return 0


def _delete(options: Namespace) -> int:
    from headwater.errors import ErrorCode
    from headwater.protocol.messages.delete_groups import DeleteGroupsRequest

    with Cluster(options.bootstrap) as cluster:
        results = []
        for group_id in options.groups:
            answer = cluster.ask_coordinator(
                group_id,
                DeleteGroupsRequest(groups_names=[group_id]),
                lambda got: int(got.results[0].error_code),
            )
            code = answer.results[0].error_code
            match code:
                case ErrorCode.NONE:
                    what = "deleted"
                case ErrorCode.GROUP_ID_NOT_FOUND:
                    what = "there is no such group"
                case ErrorCode.NON_EMPTY_GROUP:
                    what = f"not deleted: {_who_is_in(cluster, group_id)}"
                case _:
                    what = answer.results[0].error_message or code_name(code)
            results.append((group_id, code, what))
    if options.output == "json":
        print_json(
            [
                {"group": group_id, "deleted": not code, "reason": what if code else None}
                for group_id, code, what in results
            ]
        )
    else:
        for group_id, _, what in results:
            print(f"{group_id}: {what}")
    return FAILED if any(code for _, code, _ in results) else 0


def _who_is_in(cluster: Cluster, group_id: str) -> str:
    from headwater.cli.group_view import find_group

    group = find_group(cluster, group_id)
    return who_is_in(group) if group is not None else "it has members"


def who_is_in(group: Group) -> str:
    from headwater.cli.group_doctor import names

    count = len(group.members)
    who = f": {names(group.members)}" if count else ""
    return f"{count} member{'s are' if count != 1 else ' is'} in it{who}"
