"""`headwater topic dirs`: which directories hold the replicas of topics, and how large they are."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headwater.cli.arguments import from_zero
from headwater.cli.connection import one_line, open_admin
from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import plural, print_json, print_table, size_text
from headwater.cli.topic_describe import require_topics
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.blocking import Admin


@dataclass(frozen=True, slots=True)
class ReplicaDir:
    """A replica in a directory. One that is moving is not complete there yet."""

    topic: str
    partition: int
    node: int
    directory: str
    bytes: int
    lag: int
    moving: bool


def define(action: ArgumentParser) -> None:
    action.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    action.add_argument("--node", type=from_zero, metavar="ID", help="only on this node")
    action.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    with open_admin(options) as admin:
        names = options.topics or [each.name for each in admin.list_topics(internal=True)]
        topics = require_topics(admin, names)
        wanted = [
            TopicPartition(topic.name, each.index)
            for topic in topics.values()
            for each in topic.partitions
        ]
        nodes = None if options.node is None else [_require_node(admin, options.node)]
        found, problems = replica_dirs(admin, wanted, nodes=nodes)
    if options.output == "json":
        print_json([asdict(each) for each in found])
    elif found:
        rows = [
            (
                each.topic,
                each.partition,
                each.node,
                each.directory,
                size_text(each.bytes),
                each.lag,
                "moving here" if each.moving else "",
            )
            for each in found
        ]
        columns = ("topic", "partition", "node", "directory", "size", "lag", "")
        print_table(columns, rows, output="text")
        total = size_text(sum(each.bytes for each in found))
        print(f"\n{plural(len(found), 'replica')}, {total}")
    else:
        print("no replicas")
    print_problems(problems)
    return FAILED if problems else 0


def _require_node(admin: Admin, node_id: int) -> int:
    known = [each.id for each in admin.describe_cluster().nodes]
    if node_id not in known:
        raise CommandError(
            f"no node {node_id} is up", then=f"there are {', '.join(map(str, known))}"
        )
    return node_id


def replica_dirs(
    admin: Admin,
    partitions: Collection[TopicPartition] | None = None,
    *,
    nodes: Collection[int] | None = None,
) -> tuple[list[ReplicaDir], list[str]]:
    """Returns the replicas in order, and a line for each node or directory that cannot tell."""
    from headwater.client.errors import ClientError

    problems: list[str] = []

    def found() -> Iterator[ReplicaDir]:
        for node, told in admin.describe_log_dirs(nodes, partitions=partitions).items():
            if isinstance(told, ClientError):
                problems.append(f"node {node}: {one_line(told).removeprefix(f'node {node} ')}")
                continue
            for directory in told.values():
                if directory.error is not None:
                    problems.append(f"node {node}: directory {directory.path} is offline")
                for where, replica in directory.replicas.items():
                    yield ReplicaDir(
                        where.topic,
                        where.partition,
                        node,
                        directory.path,
                        replica.size_bytes,
                        replica.lag,
                        replica.is_future,
                    )

    return sorted(found(), key=lambda each: (each.topic, each.partition, each.node)), problems


def print_problems(problems: list[str]) -> None:
    for each in problems:
        print(f"headwater topic: {each}", file=sys.stderr)
