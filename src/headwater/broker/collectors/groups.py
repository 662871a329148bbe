"""Groups and transactions that this broker coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from headwater.broker.coordinators.driver import Machine, State
from headwater.broker.coordinators.groups import GroupCoordinator
from headwater.broker.coordinators.shards import Shards
from headwater.broker.coordinators.transactions import TransactionCoordinator
from headwater.broker.log_ends import LogEnds
from headwater.io import Clock
from headwater.observability.registry import Family, Item, Labels, Sample, one, release

M = TypeVar("M", bound=Machine)

_GROUP = "kafka_consumergroup"
_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
_STATES = {
    "Stable": "stable",
    "PreparingRebalance": "preparingrebalance",
    "CompletingRebalance": "completingrebalance",
    "Empty": "empty",
    "Dead": "dead",
}


class _Row(NamedTuple):
    """The progress of a group in one partition."""

    labels: Labels
    offset: int
    lag: int | None  # None: the end of the log is not known
    seconds: float | None


class GroupCollector:
    def __init__(self, groups: GroupCoordinator, ends: LogEnds, clock: Clock) -> None:
        self._groups = groups
        self._ends = ends
        self._clock = clock

    def collect(self) -> Iterator[Item]:
        yield from _partitions("group", self._groups.shards, self._clock)
        yield from self._members()
        rows: list[_Row] = []
        offsets: Counter[tuple[str, str]] = Counter()
        lags: Counter[tuple[str, str]] = Counter()
        for group, tp, committed in self._ends.committed():
            end, history = self._ends.end(tp), self._ends.find(tp)
            lag = None if end is None or end < 0 else max(0, end - committed.offset)
            seconds = None
            if lag is not None and history is not None:
                now = self._clock.monotonic()
                seconds = history.seconds_behind(committed.offset, now) if lag else 0.0
            labels = Labels(consumergroup=group, topic=tp.topic, partition=tp.partition)
            rows.append(_Row(labels, committed.offset, lag, seconds))
            offsets[group, tp.topic] += committed.offset
            lags[group, tp.topic] += lag or 0
            yield None
        yield from one(f"{_MANAGER}_numoffsets", "gauge", "Committed offsets.", len(rows))
        yield Family(f"{_GROUP}_current_offset", "gauge", "The offset that a group has committed.")
        for row in rows:
            yield Sample(row.labels, row.offset)
        yield Family(
            f"{_GROUP}_lag", "gauge", "Records between the committed offset and the end of the log."
        )
        for row in rows:
            yield None if row.lag is None else Sample(row.labels, row.lag)
        yield Family(
            f"{_GROUP}_lag_seconds",
            "gauge",
            "Age of the first record that a group has not read yet; interpolated.",
        )
        for row in rows:
            yield None if row.seconds is None else Sample(row.labels, round(row.seconds, 3))
        for name, what, sums in (
            (
                "current_offset_sum",
                "The sum of a group's committed offsets in a topic.",
                offsets,
            ),
            ("lag_sum", "The lag of a group in all partitions of a topic.", lags),
        ):
            yield Family(f"{_GROUP}_{name}", "gauge", what)
            for (group, topic), value in sums.items():
                yield Sample(Labels(consumergroup=group, topic=topic), value)
        yield from release(rows)

    def _members(self) -> Iterator[Item]:
        members: list[tuple[str, int]] = []
        states: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        for shard in self._groups.loaded():
            for group in shard.summaries():
                members.append((group.id, group.members))
                states[group.state] += 1
                kinds[group.kind] += 1
                yield None
        yield Family(f"{_GROUP}_members", "gauge", "Members of a group.")
        for group_id, count in members:
            yield Sample(Labels(consumergroup=group_id), count)
        yield from one(f"{_MANAGER}_numgroups", "gauge", "Groups.", len(members))
        for state, name in _STATES.items():
            what = f"Groups in the state {state}."
            yield from one(f"{_MANAGER}_numgroups{name}", "gauge", what, states[state])
        yield Family("headwater_groups", "gauge", "Groups by protocol and state.")
        for kind in ("classic", "consumer"):
            yield Sample(Labels(protocol=kind), kinds[kind])


def _partitions(kind: str, shards: Shards[M], clock: Clock) -> Iterator[Item]:
    """The partitions of a coordinator's topic that this broker leads, and how long loads took."""
    prefix = f"kafka_server_{kind}_coordinator_metrics"
    states = shards.states()
    yield Family(f"{prefix}_num_partitions", "gauge", f"Partitions of the {kind} coordinator here.")
    for state in (State.LOADING, State.ACTIVE, State.FAILED):
        yield Sample(Labels(state=state.value), states[state])
    shown = shards.loads.shown("load", clock.monotonic(), scale=1000)
    for name, which in (("avg", "Mean"), ("max", "Longest")):
        yield from one(
            f"{prefix}_partition_load_time_{name}",
            "gauge",
            f"{which} time to load a partition of the {kind} coordinator in the last minute, in "
            "ms.",
            shown[f"load-{name}"],
        )


class TransactionCollector:
    def __init__(self, transactions: TransactionCoordinator, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def collect(self) -> Iterator[Item]:
        yield from _partitions("transaction", self._transactions.shards, self._clock)
        states: Counter[str] = Counter()
        for shard in self._transactions.loaded():
            for state in shard.states():
                states[state.name] += 1
                yield None
        yield Family("headwater_transactions", "gauge", "Transactional ids by state.")
        for name in _TRANSACTION_STATES:
            yield Sample(Labels(state=name.lower()), states[name])
        yield from one(
            "kafka_server_transaction_coordinator_metrics_transactional_id_count",
            "gauge",
            "Transactional ids that this broker coordinates.",
            states.total(),
        )


_TRANSACTION_STATES = (
    "EMPTY",
    "ONGOING",
    "PREPARE_COMMIT",
    "PREPARE_ABORT",
    "COMPLETE_COMMIT",
    "COMPLETE_ABORT",
)
