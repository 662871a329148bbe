"""Judges a history of operations on partitions, as Jepsen's workload for Kafka does.

A history is a sequence of `Op`s: each operation of a process is invoked and completed as `ok`,
`fail` (it has certainly not happened) or `unknown` (it may have happened, or may yet happen). All
values are unique, so that a value tells which send it came from. The checker takes the operations
one by one, as they happen, and returns the anomalies that each of them shows; `finish` returns
those that only the end of the history shows. It knows nothing about the simulation: a program with
real clients can write the same history.

What was acknowledged with acks=all, and what was read, is in the log forever. What was
acknowledged with acks=1 may be lost when the leader changes, and only then. A leader that has not
heard of its successor still tells the end of the log as it was. `MAY_LOSE` ends all
promises of a partition, because too many of its replicas have lost their disks or an unclean leader
was elected: clients may hold what they read before, so that nothing can be told from then on but
that no value comes from nowhere.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum


class Outcome(Enum):
    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Action(Enum):
    SEND = "send"
    POLL = "poll"
    ASSIGN = "assign"  # partitions given to a consumer, by itself or by its group
    COMMIT = "commit"
    LIST_END = "list end"  # the end of the log, as ListOffsets tells it
    LEADER = "leader"  # the node `value` leads the partition in the epoch `offset`
    DEPOSED = "deposed"  # the node `value` no longer leads any epoch up to `offset`, and knows it
    MAY_LOSE = "may lose"


class Kind(Enum):
    LOST = "lost"  # acknowledged or read once, and passed over by a later read
    DUPLICATED = "duplicated"  # one value at two offsets
    UNSEEN = "unseen"  # acknowledged, and no read got that far
    INCONSISTENT = "inconsistent offsets"  # two values at one offset
    NONMONOTONIC = "non-monotonic"  # a producer's records, a reader's offsets, ends that go back
    SKIPPED = "skipped"  # a reader passed over records
    PHANTOM = "phantom"  # never sent, or refused


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    partition: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.partition}: {self.what}"


@dataclass(frozen=True, slots=True)
class Op:
    """One line of a history. `number` pairs an invocation with its completion."""

    time: float
    process: str
    number: int
    outcome: Outcome
    action: Action
    partition: str
    value: str = ""  # of a send
    offset: int = -1  # of an acknowledged send, a commit, an end
    acks: int = -1
    idempotent: bool = True
    group: str = ""  # of a consumer that shares its partitions
    records: tuple[tuple[int, str], ...] = ()  # offset and value of what a poll returned

    def line(self) -> str:
        fields = asdict(self) | {"outcome": self.outcome.value, "action": self.action.value}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of_line(cls, line: str) -> Op:
        fields = json.loads(line)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["action"] = Action(fields["action"])
        fields["records"] = tuple((offset, value) for offset, value in fields["records"])
        return cls(**fields)


@dataclass(slots=True)
class _Send:
    op: Op
    leaders: int  # how many leaders the partition had had when it was sent
    outcome: Outcome = Outcome.INVOKE
    offset: int = -1
    was_read: bool = False
    may_be_gone: bool = False


@dataclass(slots=True)
class _Line:
    """One producer's records in one partition, in the order in which they were sent."""

    numbers: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, number: int, offset: int) -> bool:
        """Returns whether the record stands where its place among the sends says."""
        at = bisect_left(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number:
            self.offsets[at] = offset
        else:
            self.numbers.insert(at, number)
            self.offsets.insert(at, offset)
        after_previous = at == 0 or self.offsets[at - 1] < offset
        return after_previous and (at + 1 == len(self.offsets) or offset < self.offsets[at + 1])


@dataclass(slots=True)
class _Commit:
    offset: int
    invoked_at: float
    done_at: float = float("inf")
    outcome: Outcome = Outcome.INVOKE


@dataclass(slots=True)
class _Reader:
    position: int | None = None  # None: not known before the next poll
    assigned_at: float = -1.0
    group: str = ""


@dataclass(slots=True)
class _Partition:
    name: str
    has_gaps: bool = False  # compaction or transactions leave offsets without records
    excused: bool = False  # it may have lost records
    leaders: int = 0
    epoch: int = -1  # of the newest leader
    # Each that a node may believe in, by node and epoch; since it has a successor, with the end
    # that the log had then.
    leaderships: dict[tuple[str, int], int | None] = field(default_factory=dict)
    known: dict[int, str] = field(default_factory=dict)  # for ever
    weak: dict[int, str] = field(default_factory=dict)  # acknowledged by a leader alone
    sends: dict[str, _Send] = field(default_factory=dict)
    lines: dict[str, _Line] = field(default_factory=dict)
    readers: dict[str, _Reader] = field(default_factory=dict)
    commits: dict[str, dict[tuple[str, int], _Commit]] = field(default_factory=dict)
    read_end: int = 0
    end_seen: int = 0
    end_asked: dict[tuple[str, int], int] = field(default_factory=dict)
    seen_by_group: dict[str, set[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The end of what a leader has shown."""
        return max(max(self.known, default=-1) + 1, self.end_seen)

    @property
    def has_stale_leader(self) -> bool:
        """Whether a node may believe that it leads, although it has a successor."""
        return any(end is not None for end in self.leaderships.values())

    def forget_weak(self) -> None:
        """Notes that records which only a leader has acknowledged may be lost with it."""
        self.leaders += 1
        for value in self.weak.values():
            self.sends[value].may_be_gone = True
        self.weak.clear()


class Checker:
    """`take` each operation in the order of the history, then `finish`."""

    def __init__(self) -> None:
        self.partitions: dict[str, _Partition] = {}
        self.counts: dict[str, int] = {}
        self.excused_groups: set[str] = set()  # their committed offsets may be lost

    def allow_gaps(self, partition: str) -> None:
        self._partition(partition).has_gaps = True

    def _partition(self, name: str) -> _Partition:
        found = self.partitions.get(name)
        if found is None:
            found = self.partitions[name] = _Partition(name)
        return found

    def take(self, op: Op) -> list[Anomaly]:
        key = f"{op.action.value} {op.outcome.value}"
        self.counts[key] = self.counts.get(key, 0) + 1
        partition = self._partition(op.partition)
        match op.action:
            case Action.SEND:
                return list(self._on_send(partition, op))
            case Action.POLL:
                return list(self._on_poll(partition, op))
            case Action.ASSIGN:
                partition.readers[op.process] = _Reader(None, op.time, op.group)
            case Action.COMMIT:
                self._on_commit(partition, op)
            case Action.LIST_END:
                return list(self._on_end(partition, op))
            case Action.LEADER:
                self._on_leader(partition, op)
            case Action.DEPOSED:
                for node, epoch in list(partition.leaderships):
                    if node == op.value and epoch <= op.offset:
                        del partition.leaderships[node, epoch]
                        partition.forget_weak()
            case Action.MAY_LOSE:
                partition.excused = True
        return []

    def take_all(self, ops: Iterable[Op]) -> list[Anomaly]:
        return [anomaly for op in ops for anomaly in self.take(op)]

    def _on_leader(self, partition: _Partition, op: Op) -> None:
        leadership = (op.value, op.offset)
        if leadership in partition.leaderships:
            return
        partition.forget_weak()
        if op.offset > partition.epoch:
            partition.epoch = op.offset
            for other, end in partition.leaderships.items():
                if end is None:
                    partition.leaderships[other] = partition.end
        partition.leaderships[leadership] = None if op.offset == partition.epoch else 0

    # Sends

    def _on_send(self, partition: _Partition, op: Op) -> Iterator[Anomaly]:
        if op.outcome is Outcome.INVOKE:
            partition.sends[op.value] = _Send(op, partition.leaders)
            return
        sent = partition.sends[op.value]
        sent.outcome = op.outcome
        if op.outcome is Outcome.FAIL and sent.was_read:
            yield Anomaly(Kind.PHANTOM, partition.name, f"{op.value} was read, then refused")
        if op.outcome is not Outcome.OK or op.offset < 0:
            return  # acks=0 and old duplicates are acknowledged without an offset
        if op.acks != -1 and (sent.leaders != partition.leaders or partition.has_stale_leader):
            # The leader before has acknowledged it, maybe, and another record has this offset.
            sent.may_be_gone = True
            return
        yield from self._learn(partition, op.offset, op.value, "acknowledged")
        if op.acks == -1:
            partition.known[op.offset] = op.value
            partition.weak.pop(op.offset, None)
        elif op.offset not in partition.known:
            partition.weak[op.offset] = op.value

    def _learn(self, partition: _Partition, offset: int, value: str, how: str) -> Iterator[Anomaly]:
        sent = partition.sends.get(value)
        if sent is None:
            yield Anomaly(Kind.PHANTOM, partition.name, f"{value} at {offset} was never sent")
            return
        if partition.excused:
            return
        there = partition.known.get(offset, partition.weak.get(offset))
        if there is not None and there != value:
            yield Anomaly(
                Kind.INCONSISTENT,
                partition.name,
                f"offset {offset} was {there}, now {how} as {value}",
            )
        if not sent.op.idempotent:
            sent.offset = offset
            return
        if sent.offset not in (-1, offset):
            yield Anomaly(
                Kind.DUPLICATED, partition.name, f"{value} is at {sent.offset} and at {offset}"
            )
        sent.offset = offset
        line = partition.lines.setdefault(sent.op.process, _Line())
        if not line.add(sent.op.number, offset):
            yield Anomaly(
                Kind.NONMONOTONIC,
                partition.name,
                f"{value} of {sent.op.process} at {offset} is not where its order of sending says",
            )

    # Reads

    def _on_poll(self, partition: _Partition, op: Op) -> Iterator[Anomaly]:
        if op.outcome is not Outcome.OK or not op.records:
            return
        reader = partition.readers.setdefault(op.process, _Reader(None, op.time, op.group))
        is_judged = not partition.excused and reader.group not in self.excused_groups
        if reader.position is None and reader.group and is_judged:
            yield from self._check_start(partition, reader, op)
        for offset, value in op.records:
            yield from self._check_next(partition, reader, op.process, offset)
            reader.position = offset + 1
            yield from self._learn(partition, offset, value, f"read by {op.process}")
            sent = partition.sends.get(value)
            if sent is not None:
                if sent.outcome is Outcome.FAIL:
                    yield Anomaly(Kind.PHANTOM, partition.name, f"{value} at {offset} was refused")
                sent.was_read = True
            partition.known[offset] = value
            partition.weak.pop(offset, None)
            if reader.group:
                partition.seen_by_group.setdefault(reader.group, set()).add(offset)
        assert reader.position is not None
        partition.read_end = max(partition.read_end, reader.position)

    def _check_next(
        self, partition: _Partition, reader: _Reader, process: str, offset: int
    ) -> Iterator[Anomaly]:
        due = reader.position
        if due is None or due == offset or partition.excused:
            return
        if offset < due:
            yield Anomaly(
                Kind.NONMONOTONIC, partition.name, f"{process} read {offset} where {due} was due"
            )
            return
        passed = [at for at in range(due, offset) if at in partition.known]
        for at in passed:
            yield Anomaly(
                Kind.LOST,
                partition.name,
                f"{partition.known[at]} at {at} is gone: {process} read {due - 1}, then {offset}",
            )
        if not passed and not partition.has_gaps:
            yield Anomaly(
                Kind.SKIPPED, partition.name, f"{process} read {offset} where {due} was due"
            )

    def _check_start(self, partition: _Partition, reader: _Reader, op: Op) -> Iterator[Anomaly]:
        """A new owner begins at an offset that was committed, and not at an old one."""
        first = op.records[0][0]
        commits = partition.commits.get(reader.group, {})
        settled = [
            commit
            for commit in commits.values()
            if commit.outcome is Outcome.OK and commit.done_at < reader.assigned_at
        ]
        last = max((commit.invoked_at for commit in settled), default=-1.0)
        current = {
            commit.offset
            for commit in commits.values()
            if commit.outcome is not Outcome.FAIL and commit.done_at >= last
        }
        if not settled:
            current.add(0)
        # Records between the committed offset and the first one read may have been deleted; here
        # nothing is, so that the first read is where a commit says or the log has a gap.
        begins = [offset for offset in current if offset <= first]
        if not begins:
            yield Anomaly(
                Kind.NONMONOTONIC,
                partition.name,
                f"{op.process} of {reader.group} began at {first}, committed were "
                f"{sorted(current)}",
            )
        elif max(begins) != first and not partition.has_gaps:
            yield Anomaly(
                Kind.SKIPPED,
                partition.name,
                f"{op.process} of {reader.group} began at {first}, committed were "
                f"{sorted(current)}",
            )

    def _on_commit(self, partition: _Partition, op: Op) -> None:
        commits = partition.commits.setdefault(op.group, {})
        key = (op.process, op.number)
        if op.outcome is Outcome.INVOKE:
            commits[key] = _Commit(op.offset, op.time)
            return
        commit = commits[key]
        commit.outcome = op.outcome
        if op.outcome is not Outcome.UNKNOWN:
            commit.done_at = op.time

    def _on_end(self, partition: _Partition, op: Op) -> Iterator[Anomaly]:
        key = (op.process, op.number)
        if op.outcome is Outcome.INVOKE:
            ends = [end for end in partition.leaderships.values() if end is not None]
            partition.end_asked[key] = min([*ends, partition.end])
            return
        due = partition.end_asked.pop(key, 0)
        if op.outcome is not Outcome.OK:
            return
        if op.offset < due and not partition.excused:
            yield Anomaly(
                Kind.NONMONOTONIC, partition.name, f"the log ends at {op.offset}, not at {due}"
            )
        partition.end_seen = max(partition.end_seen, op.offset)

    # The end

    def finish(self, groups: Mapping[str, Container[str]] | None = None) -> list[Anomaly]:
        """Returns what was acknowledged and never read, after a last read of everything; for each
        of `groups`, which had time to read all of its partitions, also what its members have not
        seen."""
        found = []
        for partition in self.partitions.values():
            if partition.excused:
                continue
            for value, sent in partition.sends.items():
                acknowledged = sent.outcome is Outcome.OK and sent.op.acks != 0
                if not acknowledged or sent.was_read or sent.may_be_gone or sent.offset < 0:
                    continue
                kind = Kind.LOST if sent.offset < partition.read_end else Kind.UNSEEN
                found.append(
                    Anomaly(kind, partition.name, f"{value}, acknowledged at {sent.offset}")
                )
            for group, partitions in (groups or {}).items():
                if partition.name not in partitions:
                    continue
                seen = partition.seen_by_group.get(group, set())
                missed = [offset for offset in sorted(partition.known) if offset not in seen]
                if missed:
                    found.append(
                        Anomaly(
                            Kind.UNSEEN,
                            partition.name,
                            f"{group} did not read {missed[:5]} ({len(missed)} in all)",
                        )
                    )
        return found
