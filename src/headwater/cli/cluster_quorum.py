"""`headwater cluster quorum`: shows the quorum of the metadata log, and changes its voters."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import from_zero
from headwater.cli.connection import add_cluster_options, add_controller_option, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, print_fields, print_json, print_table
from headwater.cli.watch import add_watch_options, watch

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import Quorum, QuorumReplica

_SCHEME_END = "://"
_AUTO_JOIN = "controller.quorum.auto.join.enable"
_CONFIG_TIMEOUT_MS = 3000


def define_quorum(action: ArgumentParser) -> None:
    action.add_argument(
        "change", metavar="add|remove", nargs="?", choices=("add", "remove"), help="change a voter"
    )
    action.add_argument("node", metavar="ID", nargs="?", type=from_zero, help="the voter's node id")
    action.add_argument(
        "--directory",
        metavar="ID",
        help="the voter's directory id, from its meta.properties (default: the one with which "
        "it follows the quorum)",
    )
    action.add_argument(
        "--listener",
        metavar="NAME://HOST:PORT",
        help="with add: the new voter's controller listener (default with --bootstrap-controller: "
        "the one that it registered)",
    )
    action.add_argument("--yes", action="store_true", help="required to remove a voter")
    add_watch_options(action)
    add_controller_option(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    if options.change is None:
        for name in ("directory", "listener", "yes"):
            if getattr(options, name):
                raise CommandError(f"--{name} is for `quorum add` and `quorum remove`", code=USAGE)
        return watch(options, lambda: _show(options))
    if options.watch:
        raise CommandError(f"--watch cannot be combined with {options.change}", code=USAGE)
    if options.node is None:
        raise CommandError(f"which node? `quorum {options.change} ID` names it", code=USAGE)
    return _add(options) if options.change == "add" else _remove(options)


def _show(options: Namespace) -> int:
    with open_admin(options) as admin:
        quorum = _quorum(admin)
    leader_end = max(
        (each.log_end for each in quorum.voters if each.node_id == quorum.leader_id), default=0
    )
    now_ms = max((each.last_fetch_ms or 0 for each in quorum.voters), default=0)
    replicas: list[dict[str, Any]] = [
        {
            "node": each.node_id,
            "role": "leader" if each.node_id == quorum.leader_id else role,
            "address": next(iter(quorum.listeners.get(each.node_id, {}).values()), None),
            "log_end": each.log_end,
            "lag": max(0, leader_end - each.log_end),
            "caught_up_ms": each.last_caught_up_ms,
            "fetched_ms": each.last_fetch_ms,
            "directory": each.directory_id,
        }
        for role, group in (("voter", quorum.voters), ("observer", quorum.observers))
        for each in group
    ]
    fields = {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
    }
    if options.output == "json":
        print_json({**fields, "replicas": replicas})
        return 0
    print_fields({name.replace("_", " "): value for name, value in fields.items()}, output="text")
    print()
    columns = ("node", "role", "address", "log end", "lag", "fetched", "directory")
    rows = [
        (
            each["node"],
            each["role"],
            each["address"],
            each["log_end"],
            each["lag"],
            _ago(each["fetched_ms"], now_ms),
            each["directory"],
        )
        for each in replicas
    ]
    print_table(columns, rows, output="text")
    return 0


def _quorum(admin: Admin) -> Quorum:
    from headwater.cli.cluster_status import quorum_and_leader

    quorum, has_leader = quorum_and_leader(admin)
    if not has_leader:
        raise CommandError(
            "no controller leads the quorum",
            then="start controllers until more than half of the voters run",
        )
    # Neither: the cluster has no quorum, or this user may not see it. Its own error says so.
    return quorum or admin.describe_quorum()


def _ago(then_ms: int | None, now_ms: int) -> str | None:
    if then_ms is None or not now_ms:
        return None
    return f"{max(0, now_ms - then_ms) / 1000:.1f} s ago"


# Changing voters


def _add(options: Namespace) -> int:
    node = options.node
    given = None if options.listener is None else _parsed(options.listener)
    with open_admin(options) as admin:
        quorum = _quorum(admin)
        directory = options.directory or _directory(node, quorum.observers, "follows the quorum")
        admin.add_voter(node, directory, given or _registered(admin, quorum, node))
    _tell(options, directory, f"node {node} is a voter now")
    return 0


def _remove(options: Namespace) -> int:
    node = options.node
    if not options.yes:
        raise CommandError(
            f"node {node} would not vote any more, and its directory could not be a voter's again "
            "until it is added",
            then="add --yes if that is what you want",
            code=USAGE,
        )
    with open_admin(options) as admin:
        quorum = _quorum(admin)
        directory = options.directory or _directory(node, quorum.voters, "is a voter")
        if _joins_again(admin, quorum, node, directory):
            raise CommandError(
                f"node {node} runs with controller.quorum.auto.join.enable=true: it would join the "
                "voters again at once",
                then="stop it first, or set that to false there and restart it",
            )
        admin.remove_voter(node, directory)
    _tell(options, directory, f"node {node} is not a voter any more")
    return 0


def _joins_again(admin: Admin, quorum: Quorum, node: int, directory: str) -> bool:
    """Returns whether a voter is known to run, with this directory, and to join by itself."""
    from headwater.cli.cluster_health import silent_voters
    from headwater.client.admin import broker_config
    from headwater.client.errors import ClientError

    directories = {each.directory_id for each in quorum.voters if each.node_id == node}
    if directories != {directory} or node in silent_voters(quorum):
        return False
    try:
        configs = admin.describe_config(
            broker_config(node), names=[_AUTO_JOIN], timeout_ms=_CONFIG_TIMEOUT_MS
        )
    except ClientError:  # it has just ended, is only a controller, or does not tell this user
        return False
    return _AUTO_JOIN in configs and configs[_AUTO_JOIN].value == "true"


def _tell(options: Namespace, directory: str, text: str) -> None:
    if options.output == "json":
        is_voter = options.change == "add"
        print_json({"node": options.node, "directory": directory, "voter": is_voter})
    else:
        print(text)


def _directory(node: int, among: tuple[QuorumReplica, ...], what: str) -> str:
    """Finds the directory id of a node where it is not ambiguous."""
    found = [each.directory_id for each in among if each.node_id == node]
    known = [each for each in found if each is not None]
    if len(known) == 1:
        return known[0]
    if known:
        raise CommandError(
            f"node {node} {what} with several directories: {', '.join(known)}",
            then="choose one with --directory",
        )
    if found:
        raise CommandError(
            f"node {node} has no directory id: its quorum has static voters",
            then="`headwater cluster features --set kraft.version=1` makes the quorum dynamic",
        )
    raise CommandError(
        f"no node {node} {what}", then="`headwater cluster quorum` shows voters and observers"
    )


def _registered(admin: Admin, quorum: Quorum, node: int) -> dict[str, tuple[str, int]]:
    """Returns the listener that a controller has registered, under the names that voters use."""
    if not admin.config.asks_controllers:
        raise CommandError(
            f"brokers do not know the controller listener of node {node}",
            then="--listener names it; with --bootstrap-controller it is looked up",
            code=USAGE,
        )
    names = {name for each in quorum.listeners.values() for name in each}
    for each in admin.describe_cluster().nodes:
        if each.id == node:
            return dict.fromkeys(sorted(names), (each.host, each.port))
    raise CommandError(
        f"node {node} is not registered as a controller",
        then="start it first; `headwater cluster nodes --bootstrap-controller` shows who is",
    )


def _parsed(text: str) -> dict[str, tuple[str, int]]:
    name, end, address = text.partition(_SCHEME_END)
    host, colon, port = address.rpartition(":")
    if not end or not name or not colon or not port.isdigit():
        raise CommandError(
            f"--listener {text}: expected NAME://HOST:PORT, such as CONTROLLER://host:9093",
            code=USAGE,
        )
    return {name: (host.strip("[]"), int(port))}
