"""`headwater cluster status`: whether the cluster is healthy, and what to do if it is not."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.cli.arguments import seconds
from headwater.cli.connection import START_TIMEOUT_MS, one_line, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import plural, print_fields, print_json, size_text
from headwater.cli.watch import add_watch_options, watch

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import LogDir, Quorum, Topic
    from headwater.client.errors import ClientError

# A directory counts as full below this part of its disk, but never above this many bytes: a
# hundredth of a large disk is room for a long time.
_FULL_PART = 0.01
_FULL_BYTES = 1 << 30
_WAIT_STEP_SECONDS = 0.25


class Problem(NamedTuple):
    """A sentence about what is wrong, and what to do about it."""

    what: str
    action: str


@dataclass(frozen=True, slots=True)
class Status:
    cluster: str | None
    healthy: bool
    nodes: int
    fenced: tuple[int, ...]
    controller: int | None
    topics: int
    partitions: int
    offline: int
    not_in_sync: int
    not_preferred_leader: int
    problems: tuple[Problem, ...]


def define_status(action: ArgumentParser) -> None:
    action.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        help="wait until the cluster answers and is healthy, at most this long",
    )
    add_watch_options(action)
    action.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    if options.wait is None:
        return watch(options, lambda: _show(_ask(options), options.output))
    if options.watch:
        raise CommandError("--wait and --watch cannot be combined", code=USAGE)
    return _show(_wait(options), options.output)


def _wait(options: Namespace) -> Status:
    """Asks until the cluster is healthy, or the time is over: then what was found last counts."""
    deadline = time.monotonic() + options.wait
    while True:
        left = deadline - time.monotonic()
        options.start_timeout_ms = max(1, min(START_TIMEOUT_MS, int(left * 1000)))
        is_over = left <= _WAIT_STEP_SECONDS
        try:
            status = _ask(options)
        except CommandError as error:
            if is_over or error.code == USAGE:
                raise
        else:
            if is_over or status.healthy:
                return status
        time.sleep(_WAIT_STEP_SECONDS)


def _ask(options: Namespace) -> Status:
    with open_admin(options) as admin:
        cluster = admin.describe_cluster()
        fenced = _fenced(admin)
        topics = all_topics(admin)
        quorum = quorum_if_told(admin)
        serving = [each.id for each in cluster.nodes if each.id not in fenced]
        dirs = admin.describe_log_dirs(serving, partitions=())  # the directories alone
    partitions = [each for topic in topics for each in topic.partitions]
    status = Status(
        cluster=cluster.id,
        healthy=True,
        nodes=len(cluster.nodes),
        fenced=tuple(fenced),
        controller=quorum.leader_id if quorum is not None else cluster.controller_id,
        topics=len(topics),
        partitions=len(partitions),
        offline=sum(each.leader is None for each in partitions),
        not_in_sync=sum(len(each.in_sync) < len(each.replicas) for each in partitions),
        not_preferred_leader=sum(
            each.leader is not None and each.leader != each.replicas[0] for each in partitions
        ),
        problems=(),
    )
    problems = (*_partition_problems(status), *directory_problems(dirs))
    return replace(status, problems=problems, healthy=not problems)


def _fenced(admin: Admin) -> list[int]:
    """Brokers that are registered and do not serve; older clusters do not report them."""
    from headwater.client.errors import UnsupportedVersion

    try:
        nodes = admin.describe_cluster(fenced=True).nodes
    except UnsupportedVersion:
        return []
    return [each.id for each in nodes if each.is_fenced]


def quorum_if_told(admin: Admin) -> Quorum | None:
    """The quorum, or None from a cluster that has none or does not let this user ask."""
    from headwater.client.errors import AuthorizationError, UnsupportedVersion

    try:
        return admin.describe_quorum()
    except (UnsupportedVersion, AuthorizationError):
        return None


def all_topics(admin: Admin) -> list[Topic]:
    from headwater.client.admin import Topic

    names = [each.name for each in admin.list_topics(internal=True)]
    # A topic that was deleted in the meantime is left out.
    return [each for each in admin.describe_topics(names).values() if isinstance(each, Topic)]


# Problems


def _partition_problems(status: Status) -> Iterator[Problem]:
    for node in status.fenced:
        yield Problem(
            f"node {node} is registered and does not serve",
            "start it; if it runs, its log says why it is fenced",
        )
    shown = "`headwater topic describe --problems` shows which"
    if status.offline:
        yield Problem(f"no leader: {plural(status.offline, 'partition')}", shown)
    if status.not_in_sync:
        yield Problem(f"replicas not in sync: {plural(status.not_in_sync, 'partition')}", shown)


def directory_problems(
    nodes: Mapping[int, Mapping[str, LogDir] | ClientError],
) -> Iterator[Problem]:
    """Directories that are offline or full, and nodes that do not answer."""
    from headwater.client.errors import AuthorizationError, ClientError, UnsupportedVersion

    for node, told in sorted(nodes.items()):
        if isinstance(told, AuthorizationError | UnsupportedVersion):
            continue  # nothing is known of its directories, and nothing is wrong with that
        if isinstance(told, ClientError):
            yield Problem(f"node {node} does not answer: {one_line(told)}", "look at its log")
            continue
        for each in told.values():
            where = f"node {node}: directory {each.path}"
            if each.error is not None:
                yield Problem(
                    f"{where} is offline",
                    "the node's log says why; repair the disk, then restart the node",
                )
            elif _is_full(each):
                assert each.usable_bytes is not None
                yield Problem(
                    f"{where} is full: {size_text(each.usable_bytes)} left of "
                    f"{size_text(each.total_bytes or 0)}",
                    "free some space, or lower retention.ms or retention.bytes of large topics "
                    "(`headwater topic list --sizes`)",
                )


def _is_full(directory: LogDir) -> bool:
    if directory.usable_bytes is None or directory.total_bytes is None:
        return False
    return directory.usable_bytes < min(directory.total_bytes * _FULL_PART, _FULL_BYTES)


# Output


def _show(status: Status, output: str) -> int:
    fields: dict[str, Any] = {
        name: getattr(status, name) for name in Status.__slots__ if name != "problems"
    }
    if output == "json":
        problems = [{"problem": each.what, "action": each.action} for each in status.problems]
        print_json(fields | {"problems": problems})
    else:
        fields["healthy"] = "yes" if status.healthy else "no"
        fenced = ",".join(map(str, status.fenced))
        fields["fenced"] = f"node {fenced}" if fenced else "none"
        print_fields(
            {name.replace("_", " "): value for name, value in fields.items()}, output="text"
        )
        for each in status.problems:
            print(f"\n{each.what}\n  {each.action}")
    return 0 if status.healthy else FAILED
