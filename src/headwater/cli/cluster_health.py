"""Whether a cluster is healthy: from what it said of itself to what is wrong and what to do.

No I/O: `cluster_status` asks the cluster, and `problems_of` judges the answers. A node that is down
and what follows from it (partitions without a leader, fewer replicas in sync) are one problem, so
that the first sentence names the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headwater.cli.output import plural, size_text

if TYPE_CHECKING:
    from headwater.client.admin import LogDir, Partition, Quorum
    from headwater.client.errors import ClientError

# A directory counts as full below this part of its disk, but never above this many bytes: a
# hundredth of a large disk is room for a long time.
_FULL_PART = 0.01
_FULL_BYTES = 1 << 30

# Voters fetch at least twice a second; one that has not for this long is down or cut off.
_SILENT_VOTER_MS = 10_000

_SHOWN = "`headwater topic describe --problems` shows which"


class Problem(NamedTuple):
    """A sentence about what is wrong, and what to do about it."""

    what: str
    action: str


@dataclass(frozen=True, slots=True)
class Replicated:
    """A partition, and min.insync.replicas of its topic."""

    topic: str
    partition: Partition
    min_isr: int = 1

    @property
    def is_offline(self) -> bool:
        return self.partition.leader is None

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that are not in sync."""
        partition = self.partition
        return tuple(each for each in partition.replicas if each not in partition.in_sync)

    @property
    def is_below_minimum(self) -> bool:
        """Whether it refuses records with acks=all."""
        # A topic with fewer replicas than the minimum accepts records from all of them (KIP-966).
        minimum = min(self.min_isr, len(self.partition.replicas))
        return not self.is_offline and len(self.partition.in_sync) < minimum


@dataclass(frozen=True, slots=True)
class View:
    """A cluster's report on itself. `quorum` is None if it has none or nothing may be known of it,
    and if no controller leads it, which `has_leader` tells apart. `unreachable` are controllers
    that do not answer, if they were asked."""

    serving: tuple[int, ...] = ()
    fenced: tuple[int, ...] = ()
    quorum: Quorum | None = None
    has_leader: bool = True
    unreachable: tuple[int, ...] = ()
    partitions: tuple[Replicated, ...] = ()
    dirs: Mapping[int, Mapping[str, LogDir] | ClientError] = field(default_factory=dict)


def problems_of(view: View) -> tuple[Problem, ...]:
    """Returns what is wrong, the worst first."""
    return (
        *_quorum_lost(view),
        *_nodes_down(view),
        *_partitions_alone(view),
        *_voters_replaced(view),
        *_voters_silent(view),
        *directory_problems(view.dirs),
    )


def sentence(problems: tuple[Problem, ...], well: str) -> str:
    """Returns one sentence: what is wrong and what to do, or `well`."""
    if not problems:
        return well
    first, *others = problems
    more = f" ({plural(len(others), 'more problem')} below)" if others else ""
    return f"{first.what}: {first.action}{more}"


# The quorum


def _quorum_lost(view: View) -> Iterator[Problem]:
    if view.has_leader:
        return
    silent = {node for node, told in view.dirs.items() if _does_not_answer(told)}
    down = sorted({*view.fenced, *view.unreachable, *silent})
    yield Problem(
        "no controller leads the cluster, so nothing can be changed and no partition gets a new "
        "leader",
        f"start {_nodes(down) if down else 'controllers'} until more than half of the voters run",
    )


def silent_voters(quorum: Quorum) -> tuple[int, ...]:
    """Returns the voters that have not fetched for long, by the leader's clock."""
    fetched = [each.last_fetch_ms for each in quorum.voters if each.last_fetch_ms is not None]
    now_ms = max(fetched, default=0)
    return tuple(
        each.node_id
        for each in quorum.voters
        if each.node_id != quorum.leader_id
        and now_ms - (each.last_fetch_ms or 0) > _SILENT_VOTER_MS
    )


def _voters_left(quorum: Quorum, silent: tuple[int, ...]) -> str:
    voters = len(quorum.voters)
    spare = voters - len(silent) - (voters // 2 + 1)
    may = "no other voter" if spare <= 0 else f"only {plural(spare, 'more voter')}"
    return f"{may} of the quorum may fail"


class Replacement(NamedTuple):
    """A voter that follows the quorum with another directory than the one that votes: it has lost
    that one, and its vote does not count."""

    node: int
    voting: str
    following: str


def replaced_voters(quorum: Quorum) -> tuple[Replacement, ...]:
    found = []
    for voter in quorum.voters:
        # Static voters have no directory ids: they are known by their node ids alone.
        others = [
            (each.last_fetch_ms or 0, each.directory_id)
            for each in quorum.observers
            if each.node_id == voter.node_id and each.directory_id and voter.directory_id
        ]
        # The directory that a voter had before it was replaced is an observer for a while.
        fetched_ms, directory = max(others, default=(0, None))
        if directory and voter.directory_id and fetched_ms > (voter.last_fetch_ms or 0):
            found.append(Replacement(voter.node_id, voter.directory_id, directory))
    return tuple(found)


def _voters_replaced(view: View) -> Iterator[Problem]:
    if view.quorum is None:
        return
    leader = view.quorum.listeners.get(view.quorum.leader_id, {})
    where = next(iter(leader.values()), "HOST:PORT")
    for node, voting, following in replaced_voters(view.quorum):
        yield Problem(
            f"node {node} follows the quorum with a new directory and does not vote, and "
            f"{_voters_left(view.quorum, (node,))}",
            "wait if it has controller.quorum.auto.join.enable=true; otherwise run "
            f"`headwater cluster quorum remove {node} --directory {voting} --yes` and `headwater "
            f"cluster quorum add {node} --directory {following} --bootstrap-controller {where}`",
        )


def _voters_silent(view: View) -> Iterator[Problem]:
    """Voters that do not follow, unless they are among the nodes that are down or replaced."""
    if view.quorum is None:
        return
    silent = silent_voters(view.quorum)
    replaced = {each.node for each in replaced_voters(view.quorum)}
    if not set(silent).difference(_down(view), replaced):
        return
    yield Problem(
        f"{_nodes(silent)} {_do(silent, 'does', 'do')} not follow the leader of the quorum, and "
        f"{_voters_left(view.quorum, silent)}",
        f"start {_nodes(silent)}; `headwater cluster quorum remove` removes a voter that is gone "
        "for good",
    )


# Nodes and partitions


def _down(view: View) -> tuple[int, ...]:
    """Returns the nodes that are fenced, or not registered although they have replicas."""
    holders = {node for each in view.partitions for node in each.partition.replicas}
    return tuple(sorted({*view.fenced, *holders.difference(view.serving)}))


def _nodes_down(view: View) -> Iterator[Problem]:
    down = _down(view)
    if not down:
        return
    hit = [each for each in view.partitions if any(node in down for node in each.missing)]
    offline = [
        each
        for each in view.partitions
        if each.is_offline and any(node in down for node in each.partition.replicas)
    ]
    what = f"{_nodes(down)} {_do(down, 'is', 'are')} down"
    effects = _effects(offline, [each for each in hit if not each.is_offline])
    if effects:
        what += f", so {' and '.join(effects)}"
    if view.quorum is not None:
        silent = silent_voters(view.quorum)
        if silent and set(silent) <= set(down):
            what += f"; {_voters_left(view.quorum, silent)}"
    logs = _do(down, "its log if it runs", "their logs if they run")
    action = f"start {_nodes(down)}, or read {logs}"
    if offline:
        action += (
            f"; if {_do(down, 'it is', 'they are')} lost for good, `headwater cluster elect "
            "--unclean` elects replicas that lack the newest records"
        )
    yield Problem(what, action)


def _effects(offline: list[Replicated], behind: list[Replicated]) -> list[str]:
    refusing = [each for each in behind if each.is_below_minimum]
    effects = []
    if offline:
        effects.append(f"{plural(len(offline), 'partition')} {_have(offline)} no leader")
    if refusing:
        effects.append(
            f"{plural(len(refusing), 'partition')} {_do(refusing, 'refuses', 'refuse')} acks=all"
        )
    if len(behind) > len(refusing):
        count = len(behind) - len(refusing)
        effects.append(f"{plural(count, 'partition')} {_have(range(count))} a replica less")
    return effects


def _partitions_alone(view: View) -> Iterator[Problem]:
    """Partitions whose trouble no node that is down explains."""
    down = set(_down(view))
    offline = [
        each
        for each in view.partitions
        if each.is_offline and not down.intersection(each.partition.replicas)
    ]
    if offline:
        yield Problem(
            f"{plural(len(offline), 'partition')} {_have(offline)} no leader although all nodes of "
            f"{_do(offline, 'its', 'their')} replicas are up",
            f"{_SHOWN}; a directory may be offline",
        )
    behind = [
        each
        for each in view.partitions
        if not each.is_offline and any(node not in down for node in each.missing)
    ]
    if behind:
        nodes = sorted({node for each in behind for node in each.missing if node not in down})
        refusing = [each for each in behind if each.is_below_minimum]
        what = (
            f"{plural(len(behind), 'partition')} {_have(behind)} replicas on {_nodes(nodes)} that "
            "are not in sync"
        )
        if refusing:
            what += f", and {len(refusing):,} of them {_do(refusing, 'refuses', 'refuse')} acks=all"
        yield Problem(
            what,
            f"wait until {_nodes(nodes)} {_do(nodes, 'has', 'have')} caught up; if that takes "
            f"long, read {_do(nodes, 'its log', 'their logs')}; {_SHOWN}",
        )


# Directories


def _does_not_answer(told: Mapping[str, LogDir] | ClientError) -> bool:
    from headwater.client.errors import RetriableError

    return isinstance(told, RetriableError)


def directory_problems(
    nodes: Mapping[int, Mapping[str, LogDir] | ClientError],
) -> Iterator[Problem]:
    """Directories that are offline or full, and nodes that do not answer."""
    from headwater.cli.connection import one_line
    from headwater.client.errors import AuthorizationError, ClientError, UnsupportedVersion

    for node, told in sorted(nodes.items()):
        if isinstance(told, AuthorizationError | UnsupportedVersion):
            continue  # nothing is known of its directories, and nothing is wrong with that
        if isinstance(told, ClientError):
            yield Problem(
                f"node {node} does not answer ({one_line(told)})",
                "start it, or read its log if it runs",
            )
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


# Words


def _nodes(ids: Iterable[int]) -> str:
    numbers = [str(each) for each in ids]
    if len(numbers) == 1:
        return f"node {numbers[0]}"
    return f"nodes {', '.join(numbers[:-1])} and {numbers[-1]}"


def _do(things: Sized, one: str, many: str) -> str:
    return one if len(things) == 1 else many


def _have(things: Sized) -> str:
    return _do(things, "has", "have")
