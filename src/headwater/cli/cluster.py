"""`headwater cluster`: health, nodes, quorum, features, elections and reassignments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import read_pairs
from headwater.cli.connection import add_cluster_options, one_line, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import (
    add_output_option,
    plural,
    print_fields,
    print_json,
    print_outcome,
    print_table,
    size_text,
)
from headwater.cli.parser import add_actions
from headwater.cli.watch import add_watch_options, watch

if TYPE_CHECKING:
    from headwater.client.admin import Features, Quorum

_EXAMPLES = """\
examples:
  headwater cluster status                       exit code 1 if the cluster is not healthy
  headwater cluster status --wait 30             until it is, at most 30 seconds
  headwater cluster status --watch               again every two seconds
  headwater cluster nodes
  headwater cluster quorum                       leader, voters and lag of the metadata log
  headwater cluster features
  headwater cluster features --set group.version=1 --dry-run
  headwater cluster elect                        preferred leaders for all partitions
  headwater cluster reassign                     moves in progress
  headwater cluster reassign --topic orders:0 --to 2,3 --yes
"""


def define(parser: ArgumentParser) -> None:
    from headwater.cli.cluster_moves import define_elect, define_reassign

    add_actions(
        parser,
        (
            ("status", "show whether the cluster is healthy, and what is wrong", _status_options),
            ("nodes", "show the nodes, what they lead and what they store", _nodes_options),
            ("quorum", "show the leader and the followers of the metadata log", _quorum_options),
            ("features", "show or change the levels of features", _features_options),
            ("elect", "elect leaders of partitions", define_elect),
            ("reassign", "show or start moves of partitions to other nodes", define_reassign),
        ),
        examples=_EXAMPLES,
    )


def _status_options(action: ArgumentParser) -> None:
    from headwater.cli.cluster_status import define_status

    define_status(action)
    add_cluster_options(action)
    add_output_option(action)


def _nodes_options(action: ArgumentParser) -> None:
    _define_view(action, _nodes)


def _quorum_options(action: ArgumentParser) -> None:
    _define_view(action, _quorum)


def _define_view(action: ArgumentParser, show: Callable[[Namespace], int]) -> None:
    add_watch_options(action)
    _finish(action, lambda options: watch(options, lambda: show(options)))


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
        "--dry-run", action="store_true", help="only check whether it could be done"
    )
    _finish(action, _features)


def _finish(action: ArgumentParser, run: Callable[[Namespace], int]) -> None:
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=run)


# nodes


def _nodes(options: Namespace) -> int:
    from headwater.cli.cluster_status import all_topics, quorum_if_told
    from headwater.client.errors import ClientError, UnsupportedVersion

    with open_admin(options) as admin:
        try:
            cluster = admin.describe_cluster(fenced=True)
        except UnsupportedVersion:
            cluster = admin.describe_cluster()
        quorum = quorum_if_told(admin)
        partitions = [each for topic in all_topics(admin) for each in topic.partitions]
        dirs = admin.describe_log_dirs(each.id for each in cluster.nodes if not each.is_fenced)
    voters = {each.node_id for each in quorum.voters} if quorum is not None else set()
    rows: list[dict[str, Any]] = []
    for node in cluster.nodes:
        told = dirs.get(node.id)
        rows.append(
            {
                "node": node.id,
                "address": node.address,
                "rack": node.rack,
                "state": "fenced" if node.is_fenced else "up",
                "quorum": _role(node.id, quorum, voters),
                "leads": sum(each.leader == node.id for each in partitions),
                "replicas": sum(node.id in each.replicas for each in partitions),
                "bytes": None
                if told is None or isinstance(told, ClientError)
                else sum(each.size_bytes for each in told.values()),
            }
        )
    if options.output == "json":
        print_json(rows)
        return 0
    columns = ("node", "address", "rack", "state", "quorum", "leads", "replicas", "size")
    for row in rows:
        row["size"] = None if row["bytes"] is None else size_text(row["bytes"])
    print_table(columns, [[row[name] for name in columns] for row in rows], output="text")
    return 0


def _role(node_id: int, quorum: Quorum | None, voters: set[int]) -> str | None:
    if quorum is None:
        return None
    if node_id == quorum.leader_id:
        return "leader"
    return "voter" if node_id in voters else "observer"


# quorum


def _quorum(options: Namespace) -> int:
    with open_admin(options) as admin:
        quorum = admin.describe_quorum()
    leader_end = max(
        (each.log_end for each in quorum.voters if each.node_id == quorum.leader_id), default=0
    )
    replicas = [
        {
            "node": each.node_id,
            "role": "leader" if each.node_id == quorum.leader_id else role,
            "log_end": each.log_end,
            "lag": max(0, leader_end - each.log_end),
            "caught_up_ms": each.last_caught_up_ms,
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
    rows = [
        (each["node"], each["role"], each["log_end"], each["lag"], each["directory"])
        for each in replicas
    ]
    print_table(("node", "role", "log end", "lag", "directory"), rows, output="text")
    return 0


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
