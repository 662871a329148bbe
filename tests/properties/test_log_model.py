"""The log against a list: whatever is done to it, it has what a list of batches would have.

The disk is the simulated one, so that a power cut loses, tears and reorders all that was not
synced, names included.
"""

from __future__ import annotations

from bisect import bisect_right
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import Phase, assume, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater import _core
from headwater.io import Disk
from headwater.storage import Log, LogDirs
from headwater.testing.sim.crash import after_kill, after_power_cut
from headwater.testing.sim.disk import SimDisk
from tests.support import logs as make

NODE = 1
DAY_MS = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now = make.NOW

    def monotonic(self) -> float:
        return self.now / 1000

    def wall_ms(self) -> int:
        return self.now


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.random = Random(0)
        self.batches: list[tuple[int, int, bytes]] = []  # base, end, bytes as stored
        self.start = 0
        self.end = 0
        self.durable_end = 0
        self.sequences: dict[int, tuple[int, int]] = {}  # producer -> next sequence, at end
        self.epoch = 0
        self.log: Log

    @initialize(seed=st.integers(0, 2**32), interval=st.sampled_from([0, 200, 4096]))
    def begin(self, seed: int, interval: int) -> None:
        self.random = Random(seed)
        self.config = make.settings(
            segment_bytes=1200, index_interval_bytes=interval, retention_bytes=3000
        )
        clock: Any = self.clock
        self.disk: Disk = SimDisk(clock, self.random, 1 << 24)
        self.open()

    def open(self) -> None:
        self.dirs = LogDirs.open(
            self.disk,
            ["/data"],
            node_id=NODE,
            clock=self.clock,
            new_id=lambda: self.random.randbytes(16),
            cluster_id="cluster",
        )
        self.dirs.load(lambda _: self.config)
        found = self.dirs.get(make.TP)
        if self.durable_end > self.start:
            assert found is not None
            assert found.topic_id == make.TOPIC_ID
        if found is None:
            found = self.dirs.create(make.TP, make.TOPIC_ID, self.config)
        if found.topic_id != make.TOPIC_ID:
            self.dirs.assign_topic_id(make.TP, make.TOPIC_ID)
        self.log = found

    def last(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    # What may happen.

    @rule(count=st.integers(1, 5), size=st.integers(0, 200), later_ms=st.integers(0, 100))
    def append(self, count: int, size: int, later_ms: int) -> None:
        self.clock.now += later_ms
        data = make.batch(*[b"x" * size] * count, timestamp=self.clock.now)
        appended = self.log.append_as_leader(data, epoch=self.epoch, now_ms=self.clock.now)
        assert appended.base_offset == self.end
        self.took(data, appended.base_offset, appended.last_offset)

    @rule(producer=st.integers(0, 2), count=st.integers(1, 3))
    def append_idempotent(self, producer: int, count: int) -> None:
        sequence = self.sequences.get(producer, (0, 0))[0]
        data = make.sent(producer, sequence, count, timestamp=self.clock.now)
        again = bytearray(data)
        appended = self.log.append_as_leader(data, epoch=self.epoch, now_ms=self.clock.now)
        assert not appended.duplicate
        assert appended.base_offset == self.end
        self.took(data, appended.base_offset, appended.last_offset)
        self.sequences[producer] = (sequence + count, self.end)
        repeated = self.log.append_as_leader(again, epoch=self.epoch, now_ms=self.clock.now)
        assert repeated.duplicate
        assert repeated.base_offset == appended.base_offset
        assert repeated.last_offset == appended.last_offset

    @rule(count=st.integers(1, 4), gap=st.integers(0, 3))
    def replicate(self, count: int, gap: int) -> None:
        data, places, offset = bytearray(), [], self.end + gap
        for _ in range(count):
            piece = make.batch(
                b"replicated", timestamp=self.clock.now, base_offset=offset, leader_epoch=self.epoch
            )
            places.append((offset, offset + 1, bytes(piece)))
            data += piece
            offset += 1
        self.log.append_as_follower(data, now_ms=self.clock.now)
        self.batches += places
        self.end = offset

    def took(self, data: bytearray, base: int, last: int) -> None:
        self.batches.append((base, last + 1, bytes(data)))
        self.end = last + 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.now)

    @rule()
    def elect(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch, self.log.end)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        """Followers cut where an epoch ended, which is where a batch ended."""
        ends = [entry[1] for entry in self.batches if entry[1] >= self.start]
        if self.log.start == self.start and not any(
            entry[0] < self.start < entry[1] for entry in self.batches
        ):
            ends.insert(0, self.start)
        if not ends:
            return
        target = ends[-min(back, len(ends)) :][0] if back else self.end
        self.log.truncate_to(target)
        self.end = min(self.end, target)
        self.batches = [entry for entry in self.batches if entry[1] <= target]
        self.durable_end = min(self.durable_end, self.last())
        self.forget_sequences()

    @rule(offset=st.integers(0, 200))
    def begin_anew(self, offset: int) -> None:
        self.log.truncate_and_start_at(offset)
        self.batches.clear()
        self.start = self.end = offset
        self.durable_end = 0
        self.sequences.clear()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.delete_records_before(offset)
        self.start = offset

    @rule()
    def retain(self) -> None:
        for retired in self.log.delete_old_segments(self.clock.now, self.log.end):
            retired.delete()
        assert self.log.start <= self.end
        self.start = max(self.start, self.log.start)

    @rule()
    def flush(self) -> None:
        make.flush(self.log)
        assert self.log.recovery_point == self.log.end
        self.durable_end = self.end

    @rule()
    def checkpoint(self) -> None:
        self.dirs.checkpoint_job({make.TP: self.end}).run()

    @rule()
    def restart(self) -> None:
        start = self.log.start
        self.dirs.close(clean=True)
        self.open()
        assert not self.dirs.reports
        self.durable_end = self.end
        assert self.log.start == start

    @rule()
    def kill(self) -> None:
        disk = self.disk
        assert isinstance(disk, SimDisk)
        self.disk = after_kill(disk)
        disk.dead = False
        self.open()
        assert not self.dirs.reports, "a killed process has torn nothing"
        assert self.log.end == self.last() or self.log.end == self.end
        self.came_back()

    @precondition(lambda self: isinstance(self.disk, SimDisk))
    @rule(seed=st.integers(0, 2**32))
    def cut_power(self, seed: int) -> None:
        disk = self.disk
        assert isinstance(disk, SimDisk)
        self.disk = after_power_cut(disk, Random(seed))
        self.open()
        assert self.log.end >= min(self.durable_end, self.last()), self.dirs.reports
        self.came_back()

    @rule(seed=st.integers(0, 2**32), size=st.integers(0, 200))
    def flush_and_cut_power(self, seed: int, size: int) -> None:
        """Flushes for a waiting producer; by chance this would come too seldom."""
        self.append(1, size, 0)
        self.flush()
        self.cut_power(seed)

    def came_back(self) -> None:
        """The log ends where its last batch does; what was not durable may be gone."""
        assert self.log.start <= self.start, "what survives is a prefix, never a suffix"
        end = self.log.end
        self.batches = [entry for entry in self.batches if entry[1] <= end]
        self.start = max(min(self.start, end), self.log.start)
        self.end = end
        self.durable_end = min(self.durable_end, end)
        self.forget_sequences()

    def forget_sequences(self) -> None:
        """Both sides forget the state of producers that was cut: a producer begins anew."""
        self.sequences = {
            producer: place for producer, place in self.sequences.items() if place[1] <= self.end
        }
        for entry in self.log.producers:
            if entry.producer_id not in self.sequences and entry.batches:
                self.sequences[entry.producer_id] = (entry.last_sequence + 1, self.end)

    # What must hold.

    @invariant()
    def the_ends_are_those_of_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.start <= self.start
        assert self.log.end == self.end
        assert self.log.size == sum(segment.size for segment in self.log.segments)
        assert self.log.recovery_point <= self.log.end
        for segment in self.log.segments:
            assert segment.size == segment.file.size()

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end), label="offset")
        bounds = [entry[0] for entry in self.batches if entry[0] >= self.start] + [self.end]
        upto = data.draw(st.sampled_from(bounds), label="upto")
        bytes_max = data.draw(st.integers(0, 2000), label="bytes_max")
        at_least_one = data.draw(st.booleans(), label="at_least_one")
        read = self.log.read(offset, bytes_max=bytes_max, upto=upto, at_least_one=at_least_one)
        expected = [entry for entry in self.batches if entry[1] > offset and entry[0] < upto]
        if not expected or offset >= upto:
            assert read.slice is None
            return
        bases = [segment.base for segment in self.log.segments]
        home = bisect_right(bases, expected[0][0])
        same = [entry[2] for entry in expected if bisect_right(bases, entry[0]) == home]
        count = min(bytes_max, sum(map(len, same)))
        if count < len(same[0]):
            count = len(same[0]) if at_least_one else 0
        assert (read.slice.read() if read.slice else b"") == b"".join(same)[:count]
        assert read.size == count

    @rule()
    def read_everything(self) -> None:
        stored = {entry[0]: entry[2] for entry in self.batches if entry[1] > self.start}
        found: dict[int, bytes] = {}
        offset = self.start
        while offset < self.end:
            read = self.log.read(offset, bytes_max=1 << 20, upto=self.end)
            if read.slice is None:
                break
            data = read.slice.read()
            batches, reached, reason = _core.scan(data)
            assert reason is None
            assert reached == len(data)
            for batch in batches:
                found[batch.base_offset] = data[batch.position : batch.position + batch.size]
            offset = batches[-1].last_offset + 1
        assert found == stored

    @rule(data=st.data())
    def find_by_time(self, data: st.DataObject) -> None:
        timestamp = data.draw(st.integers(make.NOW, self.clock.now + 1))
        assume(self.log.start == self.start)
        found = self.log.offset_for_time(timestamp)
        expected = None
        for _, end, stored in self.batches:
            if end <= self.start:
                continue
            for record in _core.decode(stored):
                if record.timestamp >= timestamp and record.offset >= self.start:
                    expected = (record.timestamp, record.offset)
                    break
            if expected:
                break
        assert (found[:2] if found else None) == expected


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


def test_a_removal_is_not_more_durable_than_the_name_of_the_segment_that_stays() -> None:
    """The flush ends where that segment begins, so it was created after the flush."""
    for seed in range(40):
        model = LogModel()
        model.begin(seed=0, interval=0)
        model.append(count=1, later_ms=0, size=0)
        model.append(count=1, later_ms=0, size=0)
        model.flush()
        model.append(count=4, later_ms=0, size=174)
        model.flush()
        model.append(count=2, later_ms=0, size=85)
        model.delete_records(share=1.0)
        model.retain()
        model.cut_power(seed=seed)
        model.teardown()
