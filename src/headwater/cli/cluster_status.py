"""`headwater cluster status`: asks the cluster how it is, and says what is wrong and what to do."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import seconds
from headwater.cli.cluster_health import Problem, Replicated, View, problems_of, sentence
from headwater.cli.connection import START_TIMEOUT_MS, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import plural, print_fields, print_json
from headwater.cli.watch import add_watch_options, watch

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import ClusterDescription, Quorum, Topic

_WAIT_STEP_SECONDS = 0.25

# For what only one node can answer, which may be the one that is down.
STEP_MS = 5_000
_PROBE_MS = 1_000


@dataclass(frozen=True, slots=True)
class Status:
    """Numbers are None where controllers were asked, which do not report them."""

    cluster: str | None
    healthy: bool
    summary: str
    nodes: int
    fenced: tuple[int, ...]
    controller: int | None
    voters: tuple[int, ...]
    topics: int | None
    partitions: int | None
    offline: int | None
    not_in_sync: int | None
    below_min_isr: int | None
    not_preferred_leader: int | None
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
    """Asks until the cluster is healthy or the time has passed; then the last answer counts."""
    deadline = time.monotonic() + options.wait
    found: Status | None = None
    while True:
        left = deadline - time.monotonic()
        options.start_timeout_ms = max(1, min(START_TIMEOUT_MS, int(left * 1000)))
        is_over = left <= _WAIT_STEP_SECONDS
        try:
            found = _ask(options)
        except CommandError as error:
            if error.code == USAGE or (is_over and found is None):
                raise
            if not is_over:
                found = None
        # The last attempt has hardly any time: its failure says less than the answer before it.
        if found is not None and (is_over or found.healthy):
            return found
        time.sleep(_WAIT_STEP_SECONDS)


def _ask(options: Namespace) -> Status:
    with open_admin(options) as admin:
        if admin.config.asks_controllers:
            return _of_controllers(admin)
        cluster = admin.describe_cluster()
        fenced = _fenced(admin)
        topics = all_topics(admin)
        serving = [each.id for each in cluster.nodes if each.id not in fenced]
        # The directories alone.
        dirs = admin.describe_log_dirs(serving, partitions=(), timeout_ms=STEP_MS)
        partitions = replicated(admin, topics)
        quorum, has_leader = quorum_and_leader(admin)
    problems = problems_of(
        View(tuple(serving), tuple(fenced), quorum, has_leader, partitions=partitions, dirs=dirs)
    )
    return Status(
        cluster=cluster.id,
        healthy=not problems,
        summary=sentence(
            problems,
            f"all is well: {plural(len(cluster.nodes), 'node')}, every partition with its leader "
            "and all its replicas",
        ),
        nodes=len(cluster.nodes),
        fenced=tuple(fenced),
        controller=_controller(cluster, quorum) if has_leader else None,
        voters=tuple(each.node_id for each in quorum.voters) if quorum is not None else (),
        topics=len(topics),
        partitions=len(partitions),
        offline=sum(each.is_offline for each in partitions),
        not_in_sync=sum(bool(each.missing) for each in partitions),
        below_min_isr=sum(each.is_below_minimum for each in partitions),
        not_preferred_leader=sum(
            not each.is_offline and each.partition.leader != each.partition.replicas[0]
            for each in partitions
        ),
        problems=problems,
    )


def _of_controllers(admin: Admin) -> Status:
    """Returns the status of the quorum, which is all that controllers know by themselves."""
    cluster = admin.describe_cluster()
    quorum, has_leader = quorum_and_leader(admin)
    silent = () if has_leader else unreachable(admin, (each.id for each in cluster.nodes))
    problems = problems_of(View(quorum=quorum, has_leader=has_leader, unreachable=silent))
    return Status(
        cluster=cluster.id,
        healthy=not problems,
        summary=sentence(problems, "all is well: every voter follows the leader of the quorum"),
        nodes=len(cluster.nodes),
        fenced=(),
        controller=_controller(cluster, quorum) if has_leader else None,
        voters=tuple(each.node_id for each in quorum.voters) if quorum is not None else (),
        topics=None,
        partitions=None,
        offline=None,
        not_in_sync=None,
        below_min_isr=None,
        not_preferred_leader=None,
        problems=problems,
    )


def _controller(cluster: ClusterDescription, quorum: Quorum | None) -> int | None:
    return quorum.leader_id if quorum is not None else cluster.controller_id


def _fenced(admin: Admin) -> list[int]:
    """Brokers that are registered and do not serve; older clusters do not report them."""
    from headwater.client.errors import UnsupportedVersion

    try:
        nodes = admin.describe_cluster(fenced=True).nodes
    except UnsupportedVersion:
        return []
    return [each.id for each in nodes if each.is_fenced]


def quorum_and_leader(admin: Admin) -> tuple[Quorum | None, bool]:
    """Returns the quorum, or None, and whether it has a leader as far as one may know. To be asked
    last: without a leader, a broker of Kafka's holds the request, and those behind it."""
    from headwater.client.errors import AuthorizationError, RetriableError, UnsupportedVersion

    try:
        return admin.describe_quorum(timeout_ms=STEP_MS), True
    except (UnsupportedVersion, AuthorizationError):
        return None, True
    except RetriableError:
        return None, False


def unreachable(admin: Admin, nodes: Iterable[int]) -> tuple[int, ...]:
    """Returns the nodes that do not answer."""
    from headwater.client.errors import RetriableError

    silent = []
    for node in nodes:
        try:
            admin.describe_features(node_id=node, timeout_ms=_PROBE_MS)
        except RetriableError:
            silent.append(node)
    return tuple(silent)


def all_topics(admin: Admin) -> list[Topic]:
    from headwater.client.admin import Topic

    names = [each.name for each in admin.list_topics(internal=True)]
    # A topic that was deleted in the meantime is left out.
    return [each for each in admin.describe_topics(names).values() if isinstance(each, Topic)]


def replicated(admin: Admin, topics: Iterable[Topic]) -> tuple[Replicated, ...]:
    """Returns all partitions. How many replicas a topic wants in sync is asked only where some are
    missing."""
    from headwater.client.admin import topic_config
    from headwater.client.errors import ClientError

    found = [(topic.name, each) for topic in topics for each in topic.partitions]
    lacking = {name for name, each in found if len(each.in_sync) < len(each.replicas)}
    name = "min.insync.replicas"
    told = admin.describe_configs([topic_config(each) for each in sorted(lacking)], names=[name])
    minimum = {
        resource.name: int(entries[name].value or 1)
        for resource, entries in told.items()
        if not isinstance(entries, ClientError) and name in entries
    }
    return tuple(Replicated(topic, each, minimum.get(topic, 1)) for topic, each in found)


# Output


def _show(status: Status, output: str) -> int:
    fields: dict[str, Any] = {
        name: getattr(status, name) for name in Status.__slots__ if name != "problems"
    }
    if output == "json":
        problems = [{"problem": each.what, "action": each.action} for each in status.problems]
        print_json(fields | {"problems": problems})
        return 0 if status.healthy else FAILED
    print(f"{fields.pop('summary')}\n")
    fields["healthy"] = "yes" if status.healthy else "no"
    fields["fenced"] = _ids(status.fenced)
    fields["voters"] = _ids(status.voters)
    known = {name: value for name, value in fields.items() if value is not None}
    print_fields({name.replace("_", " "): value for name, value in known.items()}, output="text")
    if len(status.problems) > 1:
        for each in status.problems:
            print(f"\n{each.what}\n  {each.action}")
    return 0 if status.healthy else FAILED


def _ids(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers)) or "none"
