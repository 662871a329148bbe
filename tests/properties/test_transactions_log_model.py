"""Transactions in a log and its replica, against a list of batches.

Whatever producers, coordinators and elections do, a reader of committed records gets exactly those
whose transaction was committed, in order, and never beyond the first one that is undecided; and no
transaction begins in a log without the guard of a verification that is still valid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater import _core
from headwater.errors import ApiError, ErrorCode
from headwater.io.memory import MemoryDisk
from headwater.storage import Log, Verification
from tests.support import logs as make

PRODUCERS = st.integers(0, 2)
STRICT = 2


@dataclass(slots=True)
class Entry:
    """A batch of one record, or a marker."""

    offset: int
    producer: int
    epoch: int
    sequence: int = -1
    value: bytes = b""
    marker: str = ""
    transactional: bool = True


@dataclass(slots=True)
class Known:
    """A producer, as a list of batches knows it."""

    epoch: int = -1
    next_sequence: int = 0
    first: int | None = None  # of its open transaction


@dataclass(slots=True)
class Verifying:
    guard: Verification
    epoch: int
    bumps_epoch: bool
    lowest: int


class Guard(NamedTuple):
    guard: Verification
    producer: int
    epoch: int


@dataclass(slots=True)
class Replica:
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    # Up to there it may not know which markers are replicated: it takes those in a snapshot for it,
    # and waits for the high watermark with those that it read again behind the snapshot.
    settled: int = 0
    valid: dict[int, Verifying] = field(default_factory=dict)  # by producer
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        config = make.settings(segment_bytes=400, index_interval_bytes=0)
        self.log = make.open_log(self.disk, config)

    def restart(self, *, clean: bool) -> None:
        make.flush(self.log)
        self.log = make.reopen(self.disk, self.log, clean=clean)
        self.settled = self.log.end
        self.valid.clear()

    def truncate(self, end: int) -> None:
        if self.log.end > end:
            self.log.truncate_to(end)
            self.settled = end
            self.valid.clear()

    def took(self, entry: Entry) -> None:
        """Ends a verification: by a batch, or a marker that does not end the one before."""
        valid = self.valid.get(entry.producer)
        is_next = entry.marker and valid and valid.bumps_epoch and valid.epoch == entry.epoch
        if entry.transactional and not is_next:
            self.valid.pop(entry.producer, None)


class TransactionsModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.leader, self.follower = Replica(), Replica()
        self.entries: list[Entry] = []
        self.high_watermark = 0
        self.epoch = 0
        self.guards: list[Guard] = []  # those that were given out, valid or not
        self.values = 0

    # The list

    def known(self) -> dict[int, Known]:
        found: dict[int, Known] = {}
        for entry in self.entries:
            producer = found.setdefault(entry.producer, Known())
            if entry.epoch != producer.epoch:
                producer.epoch, producer.next_sequence = entry.epoch, 0
            if entry.marker:
                producer.first = None
            else:
                producer.next_sequence = entry.sequence + 1
                if entry.transactional and producer.first is None:
                    producer.first = entry.offset
        return found

    def transactions(self) -> list[tuple[int, int, int | None, str]]:
        """Producer, first offset, offset of the marker (None if open) and how each ended."""
        opened: dict[int, int] = {}
        found: list[tuple[int, int, int | None, str]] = []
        for entry in self.entries:
            if entry.marker:
                first = opened.pop(entry.producer, None)
                if first is not None:
                    found.append((entry.producer, first, entry.offset, entry.marker))
            elif entry.transactional:
                opened.setdefault(entry.producer, entry.offset)
        found += [(producer, first, None, "") for producer, first in opened.items()]
        return found

    def stable_end(self, settled: int) -> int:
        undecided = [
            first
            for _, first, end, _ in self.transactions()
            if end is None or (end >= self.high_watermark and end >= settled)
        ]
        return min([self.high_watermark, *undecided])

    def committed(self, upto: int) -> list[bytes]:
        """Returns what readers of committed records get, up to there."""
        aborted = {
            entry.offset
            for producer, first, end, how in self.transactions()
            if how == "abort" and end is not None
            for entry in self.entries
            if entry.producer == producer and first <= entry.offset < end and entry.transactional
        }
        return [
            entry.value
            for entry in self.entries
            if entry.offset < upto and not entry.marker and entry.offset not in aborted
        ]

    # What may happen

    @rule(producer=PRODUCERS, newer=st.booleans(), bumps_epoch=st.booleans())
    def verify(self, producer: int, newer: bool, bumps_epoch: bool) -> None:
        known = self.known().get(producer, Known())
        epoch = max(known.epoch, 0) + newer
        sequence = known.next_sequence if epoch == known.epoch else 0
        guard = self.leader.log.producers.begin_verification(
            producer, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch, now_ms=make.NOW
        )
        if known.first is not None and epoch == known.epoch:
            assert guard is None
            return
        assert guard is not None
        before = self.leader.valid.get(producer)
        if before is None:
            self.leader.valid[producer] = Verifying(guard, epoch, bumps_epoch, sequence)
        else:
            assert guard is before.guard
            if epoch > before.epoch:
                before.epoch, before.lowest = epoch, sequence
            elif epoch == before.epoch:
                before.lowest = min(before.lowest, sequence)
        self.guards.append(Guard(guard, producer, epoch))

    @precondition(lambda self: self.guards)
    @rule(data=st.data())
    def append_guarded(self, data: st.DataObject) -> None:
        """With any guard that was ever given out."""
        chosen = data.draw(st.sampled_from(self.guards), label="guard")
        self.append(chosen.producer, chosen.epoch, chosen.guard)

    @rule(producer=PRODUCERS)
    def append_unguarded(self, producer: int) -> None:
        self.append(producer, max(self.known().get(producer, Known()).epoch, 0), None)

    def append(self, producer: int, epoch: int, guard: Verification | None) -> None:
        known = self.known().get(producer, Known())
        sequence = known.next_sequence if epoch == known.epoch else 0
        self.values += 1
        value = b"%d" % self.values
        data = make.batch(
            value,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        is_open = known.first is not None and epoch == known.epoch
        valid = self.leader.valid.get(producer)
        if epoch < known.epoch:
            self.refused(data, guard, ErrorCode.INVALID_PRODUCER_EPOCH)
        elif not is_open and (valid is None or guard is not valid.guard):
            self.refused(data, guard, ErrorCode.INVALID_TXN_STATE)
        elif valid is not None and sequence > valid.lowest:
            self.refused(data, guard, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        else:
            log = self.leader.log
            appended = log.append_as_leader(data, epoch=self.epoch, now_ms=make.NOW, guard=guard)
            assert not appended.duplicate
            self.took(Entry(appended.base_offset, producer, epoch, sequence, value))

    def took(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.leader.took(entry)

    def refused(self, data: bytearray, guard: Verification | None, code: ErrorCode) -> None:
        log = self.leader.log
        with pytest.raises(ApiError) as raised:
            log.append_as_leader(data, epoch=self.epoch, now_ms=make.NOW, guard=guard)
        assert raised.value.code == code

    @rule(producer=PRODUCERS, abort=st.booleans(), bump=st.booleans(), version=st.integers(1, 2))
    def end(self, producer: int, abort: bool, bump: bool, version: int) -> None:
        known = self.known().get(producer, Known())
        epoch = max(known.epoch, 0) + bump

        def write() -> int:
            return self.leader.log.append_marker(
                producer,
                epoch,
                commits=not abort,
                coordinator_epoch=0,
                transaction_version=version,
                epoch=self.epoch,
                now_ms=make.NOW,
            ).base_offset

        if version == STRICT and epoch == known.epoch and known.first is not None:
            with pytest.raises(ApiError) as raised:
                write()
            assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
            return
        kind = "abort" if abort else "commit"
        self.took(Entry(write(), producer, epoch, marker=kind))

    @rule()
    def append_plain(self) -> None:
        self.values += 1
        value = b"%d" % self.values
        offset = make.append(self.leader.log, make.batch(value), epoch=self.epoch)
        self.entries.append(Entry(offset, -1, -1, value=value, transactional=False))

    @rule(bytes_max=st.integers(1, 1000))
    def replicate(self, bytes_max: int) -> None:
        log, follower = self.leader.log, self.follower.log
        found = log.read(follower.end, bytes_max=bytes_max, upto=log.end)
        if found.slice is not None:
            end = follower.end
            follower.append_as_follower(found.slice.read(), now_ms=make.NOW)
            for entry in self.entries:
                if end <= entry.offset < follower.end:
                    self.follower.took(entry)

    @rule()
    def advance(self) -> None:
        self.high_watermark = min(self.leader.log.end, self.follower.log.end)

    @rule()
    def roll(self) -> None:
        self.leader.log.roll(make.NOW)

    @rule(clean=st.booleans(), leads=st.booleans())
    def restart(self, clean: bool, leads: bool) -> None:
        (self.leader if leads else self.follower).restart(clean=clean)

    @rule()
    def fail_over(self) -> None:
        """The follower leads; what it does not have is cut from the other."""
        end = self.follower.log.end
        self.leader.truncate(end)
        self.entries = [entry for entry in self.entries if entry.offset < end]
        self.leader, self.follower = self.follower, self.leader
        self.epoch += 1

    # What must hold

    @invariant()
    def readers_get_what_is_committed(self) -> None:
        for replica in (self.leader, self.follower):
            log = replica.log
            high_watermark = min(self.high_watermark, log.end)
            if high_watermark < self.high_watermark:
                continue  # it is behind: nobody reads there up to this mark
            stable = log.last_stable_offset(self.high_watermark)
            assert self.stable_end(0) <= stable <= self.stable_end(replica.settled)
            assert read_committed(log, stable) == self.committed(stable)

    @invariant()
    def replicas_know_the_same_producers(self) -> None:
        if self.leader.log.end == self.follower.log.end:
            assert durable(self.leader.log) == durable(self.follower.log)
            end = self.leader.log.end
            assert self.leader.log.aborted(0, end) == self.follower.log.aborted(0, end)

    @invariant()
    def producers_are_those_of_the_list(self) -> None:
        found = {
            entry.producer_id: (entry.epoch, entry.last_sequence + 1, entry.txn_first_offset)
            for entry in self.leader.log.producers
        }
        assert found == {
            producer: (known.epoch, known.next_sequence, -1 if known.first is None else known.first)
            for producer, known in self.known().items()
            if producer >= 0
        }


def durable(log: Log) -> set[tuple[int, ...]]:
    return {
        (
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        for entry in log.producers
    }


def read_committed(log: Log, upto: int) -> list[bytes]:
    """Reads as a consumer does: it skips producers from where they were aborted to the marker."""
    found: list[bytes] = []
    offset = log.start
    while offset < upto:
        read = log.read(offset, bytes_max=300, upto=upto)
        assert read.slice is not None
        data = read.slice.read()
        batches = [each for each in _core.scan(data)[0] if each.base_offset < upto]
        aborted = sorted(log.aborted(offset, batches[-1].last_offset + 1), key=lambda a: a[1])
        undone: set[int] = set()
        for batch in batches:
            while aborted and aborted[0].first_offset <= batch.last_offset:
                undone.add(aborted.pop(0).producer_id)
            if batch.is_control:
                undone.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in undone):
                part = data[batch.position : batch.position + batch.size]
                found += [record.value or b"" for record in _core.decode(part)]
        offset = batches[-1].last_offset + 1
    return found


TestTransactionsModel = TransactionsModel.TestCase
TestTransactionsModel.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
