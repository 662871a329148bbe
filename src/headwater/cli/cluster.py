"""`headwater cluster`: health, nodes, quorum, features, elections and reassignments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import from_zero, read_pairs
from headwater.cli.cluster_health import silent_voters
from headwater.cli.connection import (
    add_cluster_options,
    add_controller_option,
    cluster_of,
    one_line,
    open_admin,
)
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import (
    add_output_option,
    plural,
    print_json,
    print_outcome,
    print_table,
    size_text,
)
from headwater.cli.parser import add_actions
from headwater.cli.watch import add_watch_options, watch

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import Features, Node, Quorum, Topic

_EXAMPLES = """\
examples:
  headwater cluster status                       exit code 1 if the cluster is not healthy
  headwater cluster status --wait 30             until it is, at most 30 seconds
  headwater cluster status --watch               again every two seconds
  headwater cluster nodes
  headwater cluster quorum                       leader, voters and lag of the metadata log
  headwater cluster quorum --bootstrap-controller host:9093
  headwater cluster quorum add 4 --listener CONTROLLER://host4:9093
  headwater cluster quorum remove 2 --yes
  headwater cluster features
  headwater cluster features --set group.version=1 --dry-run
  headwater cluster elect                        preferred leaders for all partitions
  headwater cluster unregister 2 --yes           a broker that is gone for good
  headwater cluster reassign                     moves in progress
  headwater cluster reassign --topic orders:0 --to 2,3 --yes
"""


def define(parser: ArgumentParser) -> None:
    from headwater.cli.cluster_moves import define_elect, define_reassign
    from headwater.cli.cluster_quorum import define_quorum

    add_actions(
        parser,
        (
            ("status", "show whether the cluster is healthy, and what is wrong", _status_options),
            ("nodes", "show the nodes, what they lead and what they store", _nodes_options),
            ("quorum", "show the quorum of the metadata log, or change its voters", define_quorum),
            ("features", "show or change the levels of features", _features_options),
            ("elect", "elect leaders of partitions", define_elect),
            ("unregister", "forget a broker that is gone for good", _unregister_options),
            ("reassign", "show or start moves of partitions to other nodes", define_reassign),
        ),
        examples=_EXAMPLES,
    )


def _status_options(action: ArgumentParser) -> None:
    from headwater.cli.cluster_status import define_status

    define_status(action)
    add_controller_option(action)
    add_cluster_options(action)
    add_output_option(action)


def _nodes_options(action: ArgumentParser) -> None:
    add_watch_options(action)
    _finish(action, lambda options: watch(options, lambda: _nodes(options)))


def _unregister_options(action: ArgumentParser) -> None:
    action.add_argument("node", metavar="ID", type=from_zero, help="the broker, which must be down")
    action.add_argument("--yes", action="store_true", help="do it; required")
    _finish(action, _unregister)


def _features_options(action: ArgumentParser) -> None:
    action.add_argument(
        "--set", action="append", default=[], metavar="FEATURE=LEVEL", help="change a level"
    )
    down = action.add_mutually_exclusive_group()
    down.add_argument("--downgrade", action="store_true", help="allow lower levels")
    down.add_argument(
        "--unsafe-downgrade",
        action="store_true",
        help="allow lower levels even if metadata is lost",
    )
    action.add_argument(
        "--dry-run", action="store_true", help="validate the request without changing anything"
    )
    _finish(action, _features)


def _finish(action: ArgumentParser, run: Callable[[Namespace], int]) -> None:
    add_controller_option(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=run)


# nodes


def _nodes(options: Namespace) -> int:
    from headwater.cli.cluster_status import all_topics, quorum_and_leader, unreachable

    with open_admin(options) as admin:
        if admin.config.asks_controllers:
            nodes = admin.describe_cluster().nodes
            rows = _controller_rows(nodes, unreachable(admin, (each.id for each in nodes)))
        else:
            rows = _broker_rows(admin, all_topics(admin))
        quorum, _ = quorum_and_leader(admin)
    for row in rows:
        row["quorum"] = _role(row["node"], quorum)
    if not cluster_of(options).is_of_controllers:
        rows += _other_voters({row["node"] for row in rows}, quorum)
    if options.output == "json":
        print_json(rows)
        return 0
    columns = ["node", "address", "rack", "state", "quorum"]
    if not cluster_of(options).is_of_controllers:
        columns += ["leads", "replicas", "size"]
    for row in rows:
        row["size"] = None if row.get("bytes") is None else size_text(row["bytes"])
    print_table(columns, [[row.get(name) for name in columns] for row in rows], output="text")
    return 0


def _broker_rows(admin: Admin, topics: list[Topic]) -> list[dict[str, Any]]:
    from headwater.cli.cluster_status import STEP_MS
    from headwater.client.errors import AuthorizationError, ClientError, UnsupportedVersion

    try:
        cluster = admin.describe_cluster(fenced=True)
    except UnsupportedVersion:
        cluster = admin.describe_cluster()
    partitions = [each for topic in topics for each in topic.partitions]
    serving = [each.id for each in cluster.nodes if not each.is_fenced]
    dirs = admin.describe_log_dirs(serving, timeout_ms=STEP_MS)
    rows = []
    for node in cluster.nodes:
        told = dirs.get(node.id)
        state = "fenced" if node.is_fenced else "up"
        if isinstance(told, ClientError) and not isinstance(told, AuthorizationError):
            state = "no answer"
        rows.append(
            {
                "node": node.id,
                "address": node.address,
                "rack": node.rack,
                "state": state,
                "quorum": None,
                "leads": sum(each.leader == node.id for each in partitions),
                "replicas": sum(node.id in each.replicas for each in partitions),
                "bytes": None
                if told is None or isinstance(told, ClientError)
                else sum(each.size_bytes for each in told.values()),
            }
        )
    return rows


def _other_voters(brokers: set[int], quorum: Quorum | None) -> list[dict[str, Any]]:
    """Rows for the voters that are controllers alone."""
    if quorum is None:
        return []
    silent = silent_voters(quorum)
    return [
        {
            "node": each.node_id,
            "address": next(iter(quorum.listeners.get(each.node_id, {}).values()), None),
            "rack": None,
            "state": "no answer" if each.node_id in silent else "up",
            "quorum": _role(each.node_id, quorum),
            "leads": None,
            "replicas": None,
            "bytes": None,
        }
        for each in quorum.voters
        if each.node_id not in brokers
    ]


def _controller_rows(nodes: Iterable[Node], silent: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        {
            "node": node.id,
            "address": node.address,
            "rack": node.rack,
            "state": "no answer" if node.id in silent else "up",
            "quorum": None,
        }
        for node in nodes
    ]


def _role(node_id: int, quorum: Quorum | None) -> str | None:
    if quorum is None:
        return None
    if node_id == quorum.leader_id:
        return "leader"
    return "voter" if any(node_id == each.node_id for each in quorum.voters) else "observer"


# unregister


def _unregister(options: Namespace) -> int:
    if not options.yes:
        raise CommandError(
            f"the cluster would forget broker {options.node} and that it was ever there",
            then="move its replicas elsewhere first; then add --yes",
            code=USAGE,
        )
    with open_admin(options) as admin:
        if not admin.config.asks_controllers:
            _check_down(admin, options.node)
        admin.unregister_broker(options.node)
    if options.output == "json":
        print_json({"node": options.node, "unregistered": True})
    else:
        print(f"broker {options.node} is not part of the cluster any more")
    return 0


def _check_down(admin: Admin, node: int) -> None:
    """Refuses for a broker that serves: its replicas would be orphans until it is restarted."""
    if any(each.id == node and not each.is_fenced for each in admin.describe_cluster().nodes):
        raise CommandError(f"broker {node} is up", then="stop it first")


# features


def _features(options: Namespace) -> int:
    from headwater.client.admin import FeatureUpdate, UpgradeType

    kind = UpgradeType.UPGRADE
    if options.downgrade:
        kind = UpgradeType.SAFE_DOWNGRADE
    if options.unsafe_downgrade:
        kind = UpgradeType.UNSAFE_DOWNGRADE
    updates = {
        name: FeatureUpdate(_level(name, text), kind)
        for name, text in read_pairs(options.set, "--set").items()
    }
    with open_admin(options) as admin:
        if not updates:
            _show_features(admin.describe_features(), options.output)
            return 0
        done = admin.update_features(updates, validate_only=options.dry_run)
    failed = {name: one_line(error) for name, error in done.items() if error is not None}
    if options.output == "json":
        print_json(
            [
                {
                    "feature": name,
                    "level": updates[name].level,
                    "changed": name not in failed and not options.dry_run,
                    "reason": failed.get(name),
                }
                for name in done
            ]
        )
    else:
        for name in done:
            could = "could be" if options.dry_run else "is now"
            done_text = f"{name}: {could} at level {updates[name].level}"
            print_outcome(failed.get(name, done_text), is_done=name not in failed)
    return FAILED if failed else 0


def _level(name: str, text: str) -> int:
    if not text.isdigit():
        raise CommandError(f"--set {name}={text}: expected a number", code=USAGE)
    return int(text)


def _show_features(features: Features, output: str) -> None:
    names = sorted({*features.finalized, *features.supported})
    if output == "json":
        print_json(
            [
                {
                    "feature": name,
                    "level": features.finalized[name].most if name in features.finalized else 0,
                    "supported": list(features.supported.get(name, ())) or None,
                }
                for name in names
            ]
        )
        return
    rows = []
    for name in names:
        supported = features.supported.get(name)
        rows.append(
            (
                name,
                features.finalized[name].most if name in features.finalized else 0,
                None if supported is None else f"{supported.least} to {supported.most}",
            )
        )
    print_table(("feature", "level", "supported"), rows, output="text")
    if features.epoch is not None:
        print(f"\n{plural(len(names), 'feature')}, as of metadata offset {features.epoch}")
