"""A compacted log against a list of all that was ever written to it.

Records go for a reason (a later one has the key, the transaction was aborted, a deletion mark is
past its horizon), never otherwise; what stays keeps its offset and content; a reader of everything
ends up with the last value of each key. Compaction runs step by step and anything may happen
between two steps: appends, cuts, retention, kills and power cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater import _core
from headwater.io import Disk
from headwater.storage import Log, LogDirs, Origin
from headwater.storage.cleaner import CleaningLimits
from headwater.storage.retention import RetiredSegment
from headwater.testing.sim.crash import after_kill, after_power_cut
from headwater.testing.sim.disk import SimDisk
from tests.support import cleaners
from tests.support import logs as make

NODE = 1
HORIZON_MS = 500
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
ROWS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=60)), min_size=1, max_size=4)


class Clock:
    def __init__(self) -> None:
        self.now = make.NOW

    def monotonic(self) -> float:
        return self.now / 1000

    def wall_ms(self) -> int:
        return self.now


class Entry(NamedTuple):
    """A batch that was appended."""

    base: int
    end: int
    rows: list[tuple[bytes, bytes | None]]
    timestamp: int
    producer: int = -1
    sequence: int = -1
    transactional: bool = False
    marker: str = ""


class Row(NamedTuple):
    key: bytes
    value: bytes | None
    timestamp: int


def decided(entries: list[Entry]) -> tuple[dict[int, Row], set[int]]:
    """Returns what readers of committed data may see, and the offsets of open transactions."""
    visible: dict[int, Row] = {}
    pending: dict[int, dict[int, Row]] = {}
    for entry in entries:
        if entry.marker:
            ended = pending.pop(entry.producer, {})
            if entry.marker == "commit":
                visible |= ended
            continue
        rows = {
            entry.base + at: Row(key, value, entry.timestamp)
            for at, (key, value) in enumerate(entry.rows)
        }
        if entry.transactional:
            pending.setdefault(entry.producer, {}).update(rows)
        else:
            visible |= rows
    return visible, {offset for rows in pending.values() for offset in rows}


class CompactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.random = Random(0)
        self.entries: list[Entry] = []
        self.start = 0
        self.floor = 0  # where the log began anew after it had lost all
        self.high_watermark = 0
        self.durable_end = 0
        self.was_cut = False
        self.may_be_cut = True
        self.decided_end = 0  # which transactions are not yet replicated, a start cannot know
        self.cleaning: Iterator[str] | None = None
        self.retired: list[RetiredSegment] = []
        self.log: Log

    @initialize(
        seed=st.integers(0, 2**32),
        interval=st.sampled_from([0, 200, 4096]),
        deletes=st.booleans(),
        memory=st.sampled_from([24 * 7, 1 << 16]),
    )
    def begin(self, seed: int, interval: int, deletes: bool, memory: int) -> None:
        self.random = Random(seed)
        self.limits = CleaningLimits(memory, load_factor=0.9, chunk_bytes=400)
        self.config = make.settings(
            segment_bytes=600,
            index_interval_bytes=interval,
            cleanup_policy="compact,delete" if deletes else "compact",
            retention_bytes=5000,
            min_cleanable_dirty_ratio=0,
            delete_retention_ms=HORIZON_MS,
        )
        clock: Any = self.clock
        self.disk: Disk = SimDisk(clock, self.random, 1 << 24)
        self.open()

    def open(self) -> None:
        self.cleaning = None
        self.dirs = LogDirs.open(
            self.disk,
            ["/data"],
            node_id=NODE,
            clock=self.clock,
            new_id=lambda: self.random.randbytes(16),
            cluster_id="cluster",
        )
        # The node does not know the topics' settings yet when it opens their logs.
        self.dirs.load(lambda _: make.settings(index_interval_bytes=200))
        found = self.dirs.get(make.TP)
        if found is None:
            assert not self.durable_end
            found = self.dirs.create(make.TP, make.TOPIC_ID, self.config)
        found.configure(self.config)
        self.log = found
        self.decided_end = max((e.end for e in self.entries if e.marker), default=0)

    @property
    def end(self) -> int:
        return max(self.entries[-1].end if self.entries else 0, self.floor)

    # Writing.

    @rule(rows=ROWS, codec=st.integers(0, 4), later_ms=st.integers(0, 300))
    def append(self, rows: list[tuple[bytes, bytes | None]], codec: int, later_ms: int) -> None:
        self.clock.now += later_ms
        self.put(Entry(0, 0, rows, self.clock.now), codec)

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 12))
    def append_many(self, seed: int, count: int) -> None:
        random = Random(seed)
        for _ in range(count):
            rows = [
                (random.choice([b"a", b"b", b"g", b"h"]), random.choice([None, b"x", b"y" * 50]))
                for _ in range(random.randint(1, 3))
            ]
            producer = random.choice([-1, -1, 1, 2])
            sequence = self.next_sequence(producer) if producer >= 0 else -1
            self.put(Entry(0, 0, rows, self.clock.now, producer, sequence), random.choice([0, 3]))
        self.high_watermark = self.end

    @rule(rows=ROWS, producer=st.integers(1, 3), codec=st.sampled_from([0, 0, 4]))
    def append_idempotent(
        self, rows: list[tuple[bytes, bytes | None]], producer: int, codec: int
    ) -> None:
        sequence = self.next_sequence(producer)
        self.put(Entry(0, 0, rows, self.clock.now, producer, sequence), codec)

    @rule(rows=ROWS, producer=st.integers(7, 8))
    def append_in_transaction(self, rows: list[tuple[bytes, bytes | None]], producer: int) -> None:
        sequence = self.next_sequence(producer)
        self.put(Entry(0, 0, rows, self.clock.now, producer, sequence, True), 0)

    @rule(producer=st.integers(7, 8), abort=st.booleans())
    def end_transaction(self, producer: int, abort: bool) -> None:
        if not self.log.producers.has_open_transaction(producer):
            return
        data = make.marker(producer, abort=abort, timestamp=self.clock.now)
        base = make.append(self.log, data, now_ms=self.clock.now, origin=Origin.COORDINATOR)
        kind = "abort" if abort else "commit"
        self.entries.append(Entry(base, base + 1, [], self.clock.now, producer, marker=kind))

    def put(self, entry: Entry, codec: int) -> None:
        options: dict[str, Any] = {"codec": codec, "transactional": entry.transactional}
        if entry.producer >= 0:
            options |= {
                "producer_id": entry.producer,
                "producer_epoch": 0,
                "base_sequence": entry.sequence,
            }
        data = make.records(
            [(key, value, [], entry.timestamp) for key, value in entry.rows], **options
        )
        again = bytearray(data)
        base = make.append(self.log, data, now_ms=self.clock.now)
        assert base == self.end
        if entry.producer >= 0:
            repeated = self.log.append_as_leader(again, epoch=0, now_ms=self.clock.now)
            assert repeated.duplicate
        self.entries.append(entry._replace(base=base, end=base + len(entry.rows)))

    def next_sequence(self, producer: int) -> int:
        known = self.log.producers.get(producer)
        if known is not None and self.is_deleted(producer):
            return known.last_sequence + 1
        for entry in reversed(self.entries):
            if entry.producer == producer and not entry.marker:
                return entry.sequence + len(entry.rows)
        return 0

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.now)

    @rule()
    def replicate(self) -> None:
        self.high_watermark = self.end

    # Compaction, a step at a time or a whole round.

    @rule(count=st.integers(1, 15))
    def clean_some(self, count: int) -> None:
        if self.cleaning is None:
            self.cleaning = cleaners.steps(
                self.disk,
                self.log,
                now_ms=self.clock.now,
                high_watermark=self.high_watermark,
                limits=self.limits,
                checkpoint=self.write_checkpoints,
                retired=self.retired,
            )
        for _ in range(count):
            done = next(self.cleaning, None)
            if done == "flushed":
                self.durable_end = self.end
            if done is None:
                self.cleaning = None
                break

    def write_checkpoints(self) -> None:
        self.dirs.checkpoint_job().run()
        self.dirs.cleaned_job(self.log).run()

    @rule()
    def clean_all(self) -> None:
        self.clean_some(10_000)

    @rule(later_ms=st.integers(0, 2 * HORIZON_MS))
    def wait(self, later_ms: int) -> None:
        self.clock.now += later_ms

    @rule()
    def delete_old_files(self) -> None:
        for segment in self.retired:
            segment.delete()
        self.retired.clear()

    # What else happens to a log.

    @rule(back=st.integers(0, 6))
    def truncate(self, back: int) -> None:
        lowest = max(self.high_watermark, self.decided_end)
        ends = [entry.end for entry in self.entries if entry.end >= lowest]
        if back == 0 or len(ends) <= back or not self.may_be_cut:
            return
        self.log.truncate_to(ends[-1 - back])
        self.was_cut = True
        self.entries = [entry for entry in self.entries if entry.end <= ends[-1 - back]]
        self.durable_end = min(self.durable_end, self.end)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.log.start + int((self.high_watermark - self.log.start) * share)
        self.log.delete_records_before(offset)
        self.start = max(self.start, offset)

    @rule()
    def retain(self) -> None:
        self.retired += self.log.delete_old_segments(self.clock.now, self.high_watermark)
        self.start = max(self.start, self.log.start)

    @rule()
    def flush(self) -> None:
        make.flush(self.log)
        self.durable_end = self.end

    @rule()
    def checkpoint(self) -> None:
        self.dirs.checkpoint_job({make.TP: self.end}).run()

    @rule()
    def restart(self) -> None:
        self.dirs.close(clean=True)
        self.open()
        assert not self.dirs.reports
        assert self.log.end == self.end

    @rule(lost=st.sampled_from(["", "", ".snapshot", "recovery-point-offset-checkpoint"]))
    def kill(self, lost: str) -> None:
        """Snapshots and checkpoints save work: without them all is found in the log."""
        disk = self.disk
        assert isinstance(disk, SimDisk)
        self.disk = after_kill(disk)
        disk.dead = False
        if lost == ".snapshot":
            # Of a producer whose last batch is cut off only they may know the one before.
            lost = "" if self.was_cut else lost
            self.may_be_cut &= not lost
        for folder in ("/data", self.log.path) if lost else ():
            for name in self.disk.list(folder):
                if name.endswith(lost):
                    self.disk.remove(f"{folder}/{name}")
        self.open()
        assert not self.dirs.reports, "a killed process has torn nothing"
        assert self.log.end == self.end
        self.came_back()
        if lost.endswith("checkpoint"):
            # Until there is one again, a second crash could not tell a loss from a gap.
            self.flush()
            self.checkpoint()

    @precondition(lambda self: self.entries and self.may_be_cut)
    @rule(seed=st.integers(0, 2**32))
    def cut_power(self, seed: int) -> None:
        disk = self.disk
        assert isinstance(disk, SimDisk)
        self.disk = after_power_cut(disk, Random(seed))
        self.open()
        assert self.log.end >= self.durable_end, self.dirs.reports
        self.came_back()

    def came_back(self) -> None:
        self.retired.clear()
        end = self.log.end
        self.was_cut |= end < self.end
        self.entries = [entry for entry in self.entries if entry.end <= end]
        if self.end != end:
            assert self.log.start == end
            self.floor = end
        self.start = min(max(self.start, self.log.start), end)
        self.high_watermark = min(self.high_watermark, end)
        self.durable_end = min(self.durable_end, end)

    # What must hold.

    def stored(self, upto: int) -> tuple[dict[int, Row], set[int]]:
        """All records by offset that a reader up to there gets, and those of transactions that
        were aborted, as readers of committed data tell them."""
        rows: dict[int, Row] = {}
        hidden: set[int] = set()
        aborted = sorted(
            self.log.aborted(self.log.start, self.log.end), key=lambda entry: entry.first_offset
        )
        undone: set[int] = set()
        offset, last = self.log.start, -1
        while offset < upto:
            read = self.log.read(offset, bytes_max=300, upto=upto)
            if read.slice is None:
                break
            data = read.slice.read()
            batches, _, reason = _core.scan(data)
            assert reason in (None, "truncated")
            for batch in batches:
                assert batch.base_offset > last
                last = batch.last_offset
                while aborted and aborted[0].first_offset <= batch.last_offset:
                    undone.add(aborted.pop(0).producer_id)
                own = _core.decode(data[batch.position : batch.position + batch.size])
                if batch.is_control:
                    if own and (own[0].key or b"")[3] == 0:
                        undone.discard(batch.producer_id)
                    continue
                for record in own:
                    assert record.key is not None
                    rows[record.offset] = Row(record.key, record.value, record.timestamp)
                    if batch.is_transactional and batch.producer_id in undone:
                        hidden.add(record.offset)
            assert batches
            offset = batches[-1].last_offset + 1
        return rows, hidden

    @invariant()
    def nothing_went_but_for_a_reason(self) -> None:
        if not hasattr(self, "log"):
            return
        visible, pending = decided(self.entries)
        written = {
            entry.base + at: Row(key, value, entry.timestamp)
            for entry in self.entries
            for at, (key, value) in enumerate(entry.rows)
        }
        rows, hidden = self.stored(self.log.end)
        assert list(rows) == sorted(rows)
        below, _ = self.stored(self.high_watermark)
        assert below == {at: row for at, row in rows.items() if at < self.high_watermark}
        assert rows.items() <= written.items()
        start = max(self.start, self.log.start)
        readable = {offset for offset in rows if offset >= start} - pending
        assert readable - hidden <= visible.keys()
        assert not hidden & visible.keys()
        last_of = {row.key: offset for offset, row in sorted(visible.items())}
        for offset, row in visible.items():
            if offset < start or offset in readable:
                continue
            if last_of[row.key] == offset:
                assert row.value is None, f"the last value of {row.key!r}, at {offset}, is gone"
                older = [at for at in readable if at < offset and rows[at].key == row.key]
                assert not older, f"the deletion of {row.key!r} went before {older}"
                assert self.clock.now >= row.timestamp + HORIZON_MS
        assert pending & {o for o in written if o >= start} <= rows.keys()

    @invariant()
    def producers_are_known(self) -> None:
        if not hasattr(self, "log"):
            return
        for producer in (1, 2, 3, 7, 8):
            expected = self.next_sequence(producer) - 1
            entry = self.log.producers.get(producer)
            found = -1 if entry is None else entry.last_sequence
            if found == -1 and self.is_deleted(producer):
                continue  # nothing in the log tells of it any more
            assert found == expected, producer

    def is_deleted(self, producer: int) -> bool:
        """All its data is before the start of the log."""
        bases = [e.base for e in self.entries if e.producer == producer and not e.marker]
        return bool(bases) and bases[-1] < self.log.start

    @invariant()
    def the_ends_are_right(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.size == sum(segment.size for segment in self.log.segments)
        bases = [segment.base for segment in self.log.segments]
        assert bases == sorted(set(bases))
        for segment in self.log.segments:
            assert segment.size == segment.file.size()

    @rule(timestamp_share=st.floats(0, 1))
    def find_by_time(self, timestamp_share: float) -> None:
        timestamp = make.NOW + int((self.clock.now - make.NOW) * timestamp_share)
        rows, _ = self.stored(self.log.end)
        found = self.log.offset_for_time(timestamp)
        expected = next(
            (
                (row.timestamp, offset)
                for offset, row in rows.items()
                if row.timestamp >= timestamp and offset >= self.log.start
            ),
            None,
        )
        if (found[:2] if found else None) != expected:
            # Only a marker may come earlier.
            assert found is not None
            assert any(entry.marker and entry.base == found.offset for entry in self.entries)


TestCompactionModel = CompactionModel.TestCase
TestCompactionModel.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
