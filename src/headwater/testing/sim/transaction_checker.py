"""Judges a history of transactions, by the anomalies that Jepsen looks for in Kafka.

A transaction writes unique values to several partitions, and may have read others' values first. It
ends as committed (`OK`), aborted (`FAIL`) or `UNKNOWN`. Readers of committed data tell what they
have read, with offsets. As in `checker`, nothing here knows about the simulation.

What must never happen:

- an aborted read (G1a): a value of a transaction that was aborted;
- an early read: a value whose commit nobody had asked for, a transaction's own one among them;
- a torn transaction: some of its values are there in the end, others are not;
- a lost value, of a transaction that is committed; a value at two offsets; two values at one;
- a reader that goes back, or passes over what is committed;
- circular information flow (G1c, write-read edges only: Kafka does not isolate writes);
- a record that two committed transactions of one group have processed, or none.

A partition or a whole history can be excused: too many replicas have lost what was promised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from headwater.testing.sim.checker import Outcome


class Kind(Enum):
    ABORTED_READ = "aborted read"
    EARLY_READ = "early read"
    TORN = "torn transaction"
    LOST = "lost"
    DUPLICATED = "duplicated"
    INCONSISTENT = "inconsistent offsets"
    NONMONOTONIC = "non-monotonic"
    SKIPPED = "skipped"
    PHANTOM = "phantom"
    CYCLE = "circular information flow"
    PROCESSED_TWICE = "processed twice"
    UNPROCESSED = "unprocessed"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"


@dataclass(slots=True, eq=False)
class Txn:
    """A transaction, as its client sees it."""

    name: str
    group: str = ""  # for which it processes records
    is_asked: bool = False  # the commit was asked for
    outcome: Outcome = Outcome.INVOKE
    writes: list[tuple[str, str]] = field(default_factory=list)  # partition and value
    reads: list[tuple[str, int, str]] = field(default_factory=list)  # with the offset
    was_read: bool = False


@dataclass(slots=True)
class _Session:
    """One reader from where it began in a partition."""

    reader: str
    partition: str
    first: int = -1
    end: int = -1
    offsets: set[int] = field(default_factory=set)


class TransactionChecker:
    def __init__(self) -> None:
        self.excused: set[str] = set()  # partitions
        self.all_excused = False
        self.transactions: list[Txn] = []
        self._writers: dict[str, tuple[Txn, str]] = {}  # by value, with its partition
        self._offsets: dict[str, dict[int, str]] = {}  # what is known to be where
        self._places: dict[str, int] = {}  # of values
        self._sessions: list[_Session] = []
        self._current: dict[tuple[str, str], _Session] = {}

    # What clients do

    def begin(self, name: str, group: str = "") -> Txn:
        txn = Txn(name, group)
        self.transactions.append(txn)
        return txn

    def write(self, txn: Txn, partition: str, value: str) -> None:
        assert value not in self._writers, f"{value} is written twice"
        txn.writes.append((partition, value))
        self._writers[value] = (txn, partition)

    def acknowledged(self, partition: str, offset: int, value: str) -> list[Anomaly]:
        """Returns what the offset of a write shows."""
        return list(self._learn(partition, offset, value))

    def process(self, txn: Txn, partition: str, offset: int, value: str) -> None:
        """Notes that a transaction has read a record, which it will not read again."""
        txn.reads.append((partition, offset, value))

    def ask(self, txn: Txn) -> None:
        txn.is_asked = True

    def end(self, txn: Txn, outcome: Outcome) -> list[Anomaly]:
        txn.outcome = outcome
        if outcome is Outcome.FAIL and txn.was_read and not self.all_excused:
            return [Anomaly(Kind.ABORTED_READ, f"{txn.name} was read, then aborted")]
        return []

    def assign(self, reader: str, partition: str) -> None:
        """A reader begins, where it is not known yet."""
        session = _Session(reader, partition)
        self._sessions.append(session)
        self._current[reader, partition] = session

    def poll(
        self, reader: str, partition: str, records: Iterable[tuple[int, str]]
    ) -> list[Anomaly]:
        """Returns what a poll of committed data shows."""
        found: list[Anomaly] = []
        session = self._current.get((reader, partition))
        if session is None:
            self.assign(reader, partition)
            session = self._current[reader, partition]
        for offset, value in records:
            if session.end < 0:
                session.first = offset
            elif offset < session.end and partition not in self.excused:
                found.append(
                    Anomaly(
                        Kind.NONMONOTONIC,
                        f"{reader} read {offset} of {partition} where {session.end} was due",
                    )
                )
            session.end = offset + 1
            session.offsets.add(offset)
            found += self._learn(partition, offset, value)
            found += self._judge_read(reader, partition, offset, value)
        return found

    def _judge_read(
        self, reader: str, partition: str, offset: int, value: str
    ) -> Iterator[Anomaly]:
        written = self._writers.get(value)
        if written is None:
            return
        txn = written[0]
        txn.was_read = True
        if self.all_excused or partition in self.excused:
            return
        what = f"{reader} read {value} at {offset} of {partition}, written by {txn.name}"
        if txn.outcome is Outcome.FAIL:
            yield Anomaly(Kind.ABORTED_READ, what)
        elif not txn.is_asked:
            yield Anomaly(Kind.EARLY_READ, what)

    def _learn(self, partition: str, offset: int, value: str) -> Iterator[Anomaly]:
        written = self._writers.get(value)
        if written is None or written[1] != partition:
            yield Anomaly(Kind.PHANTOM, f"{value} at {offset} of {partition} was never sent there")
            return
        if partition in self.excused:
            return
        known = self._offsets.setdefault(partition, {})
        if known.setdefault(offset, value) != value:
            yield Anomaly(
                Kind.INCONSISTENT, f"{offset} of {partition} is {known[offset]} and {value}"
            )
        if self._places.setdefault(value, offset) != offset:
            yield Anomaly(
                Kind.DUPLICATED, f"{value} is at {self._places[value]} and {offset} of {partition}"
            )

    # The end

    def finish(
        self, last: dict[str, dict[int, str]], groups: dict[str, Collection[str]]
    ) -> list[Anomaly]:
        """Judges the whole history. `last` is what a reader of committed data has found in the end,
        by partition; `groups` had time to process all of these partitions."""
        if self.all_excused:
            return []
        seen = {
            (partition, value) for partition, records in last.items() for value in records.values()
        }
        found: list[Anomaly] = []
        for txn in self.transactions:
            found += self._judge_outcome(txn, seen)
        found += self._judge_sessions(last)
        found += self._judge_cycles()
        for group, partitions in groups.items():
            found += self._judge_group(group, partitions, last)
        return found

    def _judge_outcome(self, txn: Txn, seen: Collection[tuple[str, str]]) -> Iterator[Anomaly]:
        writes = [write for write in txn.writes if write[0] not in self.excused]
        visible = [value for partition, value in writes if (partition, value) in seen]
        missing = [value for partition, value in writes if (partition, value) not in seen]
        if txn.outcome is Outcome.OK and missing:
            yield Anomaly(Kind.LOST, f"{missing[:3]} of {txn.name}, which is committed")
        elif (txn.outcome is Outcome.FAIL or not txn.is_asked) and visible:
            yield Anomaly(Kind.ABORTED_READ, f"{visible[:3]} of {txn.name}, which is not committed")
        elif visible and missing:
            yield Anomaly(Kind.TORN, f"{txn.name}: {visible[:3]} are there, {missing[:3]} are not")

    def _judge_sessions(self, last: dict[str, dict[int, str]]) -> Iterator[Anomaly]:
        for session in self._sessions:
            partition = session.partition
            if session.first < 0 or partition in self.excused:
                continue
            passed = [
                value
                for offset, value in last.get(partition, {}).items()
                if session.first <= offset < session.end and offset not in session.offsets
            ]
            if passed:
                yield Anomaly(
                    Kind.SKIPPED, f"{session.reader} passed over {passed[:3]} in {partition}"
                )

    def _judge_cycles(self) -> Iterator[Anomaly]:
        readers: dict[Txn, list[Txn]] = {}  # of what a transaction has written
        for txn in self.transactions:
            for _, _, value in txn.reads if txn.outcome is not Outcome.FAIL else ():
                written = self._writers.get(value)
                if written is not None and txn.is_asked:
                    readers.setdefault(written[0], []).append(txn)
        for cycle in cycles(readers):
            names = " -> ".join(txn.name for txn in cycle)
            yield Anomaly(Kind.CYCLE, names)

    def is_effective(self, txn: Txn) -> bool | None:
        """Returns whether a transaction is committed, as far as anybody can tell."""
        if txn.outcome is Outcome.OK or (txn.is_asked and txn.was_read):
            return True
        if txn.outcome is Outcome.FAIL or not txn.is_asked or txn.writes:
            return False
        return None

    def _judge_group(
        self, group: str, partitions: Collection[str], last: dict[str, dict[int, str]]
    ) -> Iterator[Anomaly]:
        processed: dict[tuple[str, int], Txn] = {}
        perhaps: set[tuple[str, int]] = set()
        for txn in self.transactions:
            if txn.group != group:
                continue
            certain = self.is_effective(txn)
            for partition, offset, value in txn.reads if certain is not False else ():
                if partition in self.excused:
                    continue
                perhaps.add((partition, offset))
                if certain:
                    other = processed.setdefault((partition, offset), txn)
                    if other is not txn:
                        yield Anomaly(
                            Kind.PROCESSED_TWICE,
                            f"{value} at {offset} of {partition}: {other.name} and {txn.name}",
                        )
        for partition in sorted(set(partitions) - self.excused):
            missing = [
                value
                for offset, value in last.get(partition, {}).items()
                if (partition, offset) not in perhaps
            ]
            if missing:
                yield Anomaly(
                    Kind.UNPROCESSED, f"{group} did not process {missing[:3]} in {partition}"
                )


def cycles(edges: dict[Txn, list[Txn]]) -> list[list[Txn]]:
    """Returns the strongly connected components that are cycles (Tarjan's algorithm)."""
    index: dict[Txn, int] = {}
    low: dict[Txn, int] = {}
    stack: list[Txn] = []
    on_stack: set[Txn] = set()
    found: list[list[Txn]] = []
    for root in list(edges):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(edges.get(root, ())))]
        while work:
            node, following = work[-1]
            after = next(following, None)
            if after is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = [stack.pop()]
                    while component[-1] is not node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    if len(component) > 1 or node in edges.get(node, ()):
                        found.append(component[::-1])
            elif after not in index:
                index[after] = low[after] = len(index)
                stack.append(after)
                on_stack.add(after)
                work.append((after, iter(edges.get(after, ()))))
            elif after in on_stack:
                low[node] = min(low[node], index[after])
    return found
