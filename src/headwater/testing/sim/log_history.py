"""Random histories of one log on a simulated disk, without a node: quick, and deep.

The model is a list of batches. After every crash the log must be a prefix of it that reaches at
least as far as the last flush, and at least as far as whole batches reach on the disk that the
crash left: recovery neither invents nor throws away. The log is truncated now and then, as that of
a follower is, and its leader epochs must be those of its batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from headwater import _core
from headwater.config import TopicConfig, topic_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.storage import Log
from headwater.storage.checkpoints import read_offsets, write_offsets
from headwater.testing.sim.violation import Violation
from headwater.testing.sim.world import World

_TP = TopicPartition("t", 0)
_FOLDER = "/data/t-0"
_POINTS = "/data/recovery-point-offset-checkpoint"
_STARTS = "/data/log-start-offset-checkpoint"
_CLEAN = "/data/.kafka_cleanshutdown"
_RECALLED_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Written:
    base: int
    values: tuple[bytes, ...]
    producer: int
    sequence: int
    epoch: int

    @property
    def end(self) -> int:
        return self.base + len(self.values)


class LogHistory:
    def __init__(self, seed: int | str) -> None:
        self.world = World(seed)
        self._work = self.world.chance("workload")
        self._fate = self.world.chance("faults")
        self._machine = self.world.machine("disk")
        self._disk_bytes = self._machine.disk.capacity_bytes
        self._host: Host = self._machine.boot()
        self._config = self._draw_config(self._work)
        self._written: list[Written] = []
        self._durable_end = 0
        self._start = 0  # the highest start the log has had
        self._start_durable = 0
        self._sequences: dict[int, int] = {}
        self._first_producer = 0
        self._value = 0
        self._epoch = 0
        self._deleted_to = 0  # starts that a crash took back may have taken epochs along
        self._log: Log
        self._host.disk.make_dirs("/data")
        self._host.disk.sync_dir("/")
        self._open()

    @staticmethod
    def _draw_config(chance: Random) -> TopicConfig:
        return topic_config(
            {
                "internal.segment.bytes": str(chance.choice((12_000, 30_000, 100_000))),
                "index.interval.bytes": str(chance.choice((0, 100, 1_000, 4_096))),
                "segment.index.bytes": str(chance.choice((60, 1_000, 100_000))),
                "preallocate": chance.choice(("true", "false")),
                "retention.bytes": str(chance.choice((-1, -1, 20_000))),
            }
        )

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self._step()
            self._crash(power_cut=True)
        finally:
            self.world.close()

    def _step(self) -> None:
        draw = self._work.random()
        if draw < 0.62:
            self._append()
        elif draw < 0.72:
            self._flush()
        elif draw < 0.78:
            self._checkpoint()
        elif draw < 0.79:
            self._roll()
        elif draw < 0.80:
            self._epoch += 1
        elif draw < 0.83:
            self._delete_records()
        elif draw < 0.87:
            self._retire()
        elif draw < 0.90:
            self._send_again()
        elif draw < 0.94:
            self._check_all("read")
        elif draw < 0.95:
            self._fill_disk()
        elif draw < 0.96:
            self._truncate()
        elif draw < 0.97:
            self._stop_cleanly()
        else:
            self._crash(power_cut=self._fate.random() < 0.8)
        self.world.loop._now += self._work.random()

    # Writing

    def _batch(self, written: Written) -> bytearray:
        now = self._host.clock.wall_ms()
        records = [(None, value, (), now) for value in written.values]
        return bytearray(
            _core.encode(
                records,
                codec=self._work.choice((0, 0, 0, 2, 3)),
                producer_id=written.producer,
                producer_epoch=0,
                base_sequence=written.sequence,
            )
        )

    def _append(self) -> None:
        work = self._work
        producer = self._first_producer + work.randrange(3)
        values = []
        for _ in range(work.choice((1, 1, 2, 10))):
            self._value += 1
            values.append(b"%d:" % self._value + work.randbytes(work.choice((5, 100, 900))))
        log = self._log
        sequence = self._sequences.get(producer, 0)
        written = Written(log.end, tuple(values), producer, sequence, self._epoch)
        try:
            result = log.append_as_leader(
                self._batch(written), epoch=self._epoch, now_ms=self._host.clock.wall_ms()
            )
        except ApiError as refusal:
            self._refused(refusal)
            return
        self._expect(result.base_offset == written.base, f"appended at {result.base_offset}")
        self._expect(not result.duplicate, "a new batch was taken for an old one")
        self._sequences[producer] = sequence + len(values)
        self._written.append(written)
        self.world.note(f"append {written.base}..{written.end} of producer {producer}")

    def _refused(self, refusal: ApiError) -> None:
        self._expect(
            refusal.code is ErrorCode.KAFKA_STORAGE_ERROR and "full" in str(refusal),
            f"refused: {refusal}",
        )
        self.world.note("refused, the disk is full")
        self.world.happened("full disk refuses an append")

    def _send_again(self) -> None:
        """A batch among the last five of its producer that comes again is known."""
        if not self._written:
            return
        latest: dict[int, list[Written]] = {}
        for written in self._written:
            latest.setdefault(written.producer, []).append(written)
        written = self._work.choice(latest[self._work.choice(sorted(latest))][-5:])
        if written.base < self._start:
            return
        producers, last_sequence = self._log.producers, written.sequence + len(written.values) - 1
        known = producers.find_duplicate(written.producer, 0, written.sequence, last_sequence)
        after_restart = known is None
        if known is None:
            # A snapshot keeps only the last batch of each producer, as Kafka's does.
            last = latest[written.producer][-1]
            self._expect(last is not written, f"producer {written.producer} forgot {written}")
            producers.recall(self._log.segments.last_batches(_RECALLED_BYTES))
            known = producers.find_duplicate(written.producer, 0, written.sequence, last_sequence)
        self._expect(
            known is not None and known.first_offset == written.base,
            f"batch at {written.base} was found at {known}",
        )
        self.world.happened("duplicate recognised" + (" after restart" if after_restart else ""))

    def _flush(self) -> None:
        upto = None if self._work.random() < 0.8 else self._work.randint(0, self._log.end)
        job = self._log.flush_job(upto)
        if job is None:
            self._durable_end = max(self._durable_end, self._log.recovery_point)
            return
        try:
            job.run()
        except ApiError as refusal:
            self._log.not_flushed(job)
            self._refused(refusal)
            return
        self._log.flushed(job)
        self._durable_end = max(self._durable_end, job.upto)
        self._expect(self._log.recovery_point >= job.upto, "flushed and not counted")
        self.world.note(f"flushed to {job.upto}")

    def _checkpoint(self) -> None:
        try:
            write_offsets(self._host.disk, _POINTS, {_TP: self._log.trusted_end})
            if self._work.random() < 0.5:
                write_offsets(self._host.disk, _STARTS, {_TP: self._log.start})
                self._start_durable = self._log.start
        except OSError:
            self.world.happened("full disk refuses a checkpoint")
        self.world.note("checkpoint")

    def _roll(self) -> None:
        try:
            self._log.roll(self._host.clock.wall_ms())
        except ApiError as refusal:
            self._refused(refusal)
        else:
            self.world.happened("segment rolled")

    def _delete_records(self) -> None:
        self._log.delete_records_before(self._work.randint(self._log.start, self._log.end))
        self._start = max(self._start, self._log.start)
        self._deleted_to = max(self._deleted_to, self._log.start)
        self.world.note(f"log starts at {self._log.start}")

    def _retire(self) -> None:
        try:
            retired = self._log.delete_old_segments(self._host.clock.wall_ms(), self._log.end)
        except ApiError as refusal:
            self._refused(refusal)
            return
        self._start = max(self._start, self._log.start)
        self._deleted_to = max(self._deleted_to, self._log.start)
        # As the broker does: the start is durable before a file goes.
        if retired:
            self.world.happened("segment retired")
            try:
                write_offsets(self._host.disk, _STARTS, {_TP: self._log.start})
            except OSError:
                return
            self._start_durable = self._log.start
            for segment in retired:
                if self._work.random() < 0.8:
                    segment.delete()
        self.world.note(f"retired {len(retired)} segments")

    def _truncate(self) -> None:
        """Cuts the log between two batches. What follows may be of an older epoch than the cut."""
        self._machine.disk.capacity_bytes = self._disk_bytes
        ends = [written.base for written in self._written if written.base >= self._log.start]
        if not ends:
            return
        end = self._work.choice(ends)
        for segment in self._log.truncate_to(end):
            segment.delete()
        self._written = [written for written in self._written if written.end <= end]
        self._durable_end = min(self._durable_end, end)
        oldest = self._written[-1].epoch if self._written else 0
        self._epoch = self._work.randint(oldest, self._epoch + 1)
        self.world.note(f"truncated to {end}, goes on in epoch {self._epoch}")
        self.world.happened("log truncated")
        self._check_all("truncation")
        self._check_epochs("truncation")
        self._check_producers()
        # A producer that was forgotten would have to begin a new epoch.
        self._first_producer += 3

    def _write_ends(self) -> None:
        write_offsets(self._host.disk, _POINTS, {_TP: self._log.trusted_end})
        write_offsets(self._host.disk, _STARTS, {_TP: self._log.start})
        self._start_durable = self._log.start

    # Faults

    def _fill_disk(self) -> None:
        disk = self._machine.disk
        if disk.capacity_bytes == self._disk_bytes:
            disk.capacity_bytes = disk.used_bytes + self._fate.randrange(3_000)
            self.world.note("disk nearly full")
        else:
            disk.capacity_bytes = self._disk_bytes
            self.world.note("disk has room")

    def _stop_cleanly(self) -> None:
        self._machine.disk.capacity_bytes = self._disk_bytes
        job = self._log.flush_job()
        if job is not None:
            job.run()
            self._log.flushed(job)
        self._log.close(clean=True)
        disk = self._host.disk
        job = self._log.flush_job()
        if job is not None:
            job.run()
        write_offsets(disk, _POINTS, {_TP: self._log.end})
        write_offsets(disk, _STARTS, {_TP: self._log.start})
        self._start_durable = self._log.start
        disk.write_atomically(_CLEAN, b"{}")
        self._durable_end = self._log.end
        self._machine.switch_off()
        self._host = self._machine.boot()
        self.world.note("clean stop")
        self.world.happened("clean stop")
        self._open()
        self._check_all("start after a clean stop")
        self._check_epochs("start after a clean stop")

    def _crash(self, *, power_cut: bool) -> None:
        self._machine.disk.capacity_bytes = self._disk_bytes
        self._machine.crash(power_cut=power_cut)
        self._host = self._machine.boot()
        self.world.note(f"crash, power cut: {power_cut}")
        # Killing the process loses nothing: the kernel has all that was written.
        end_min = self._durable_end if power_cut else self._log.end
        self._open()
        self._after_crash(end_min)

    def _open(self) -> None:
        disk = self._host.disk
        clean = disk.exists(_CLEAN)
        if clean:
            disk.remove(_CLEAN)
            disk.sync_dir("/data")
        point = read_offsets(disk, _POINTS).get(_TP, 0)
        start = read_offsets(disk, _STARTS).get(_TP, 0)
        self._log = Log.open(
            disk,
            _FOLDER,
            _TP,
            topic_id=bytes(16),
            config=self._config,
            now_ms=self._host.clock.wall_ms(),
            start=start,
            recovery_point=point,
            clean=clean,
            on_truncated=self._write_ends,
        )
        for report in self._log.reports:
            self.world.note(f"cut {report}")
            self.world.happened("torn tail cut")

    # Judging

    def _after_crash(self, end_min: int) -> None:
        log = self._log
        end = log.end
        self._expect(end >= end_min, f"log ends at {end}, at least {end_min} was due")
        survivors = [written for written in self._written if written.end <= end]
        known_end = survivors[-1].end if survivors else 0
        self._expect(end == max(known_end, log.start), f"log ends at {end} within a batch")
        if len(survivors) < len(self._written):
            self.world.happened("unflushed tail lost")
        self._written = survivors
        self._start = min(self._start, log.start)
        self._expect(
            self._start_durable <= log.start,
            f"log starts at {log.start}, {self._start_durable} was durable",
        )
        self._check_all("recovery")
        self._check_epochs("recovery")
        self._check_producers()

    def _check_all(self, when: str) -> None:
        """The whole log, read as a fetch reads it."""
        log = self._log
        offset = log.start
        expected = {
            written.base + place: value
            for written in self._written
            for place, value in enumerate(written.values)
        }
        while offset < log.end:
            found = log.read(offset, bytes_max=self._work.choice((1, 500, 5_000)), upto=log.end)
            self._expect(found.slice is not None, f"{when}: nothing to read at {offset}")
            assert found.slice is not None
            try:
                records = _core.decode(found.slice.read(), from_offset=offset)
            except _core.CorruptBatch as corrupt:
                raise self._violation(f"{when}: corrupt batch at {offset}: {corrupt}") from corrupt
            self._expect(bool(records), f"{when}: no whole batch in the slice at {offset}")
            for record in records:
                self._expect(
                    record.offset == offset, f"{when}: {record.offset} where {offset} was due"
                )
                self._expect(
                    record.value == expected.get(offset),
                    f"{when}: offset {offset} has {record.value!r}, not {expected.get(offset)!r}",
                )
                offset += 1
        self.world.note(f"{when}: {log.start}..{log.end} as written")

    def _check_epochs(self, when: str) -> None:
        """The epoch of every batch is known, and none that has no batch."""
        log, epochs = self._log, self._log.epochs
        for written in self._written:
            first, last = max(written.base, log.start, self._deleted_to), written.end - 1
            if first <= last:
                known = epochs.epoch_at(first), epochs.epoch_at(last)
                self._expect(
                    known == (written.epoch, written.epoch),
                    f"{when}: {first}..{last} have epoch {written.epoch}, not {known}",
                )
        if self._written and self._written[-1].end > max(log.start, self._deleted_to):
            latest = self._written[-1].epoch
            self._expect(
                log.latest_epoch == latest, f"{when}: {log.latest_epoch} follows epoch {latest}"
            )

    def _check_producers(self) -> None:
        """Every producer goes on where the log ends."""
        latest: dict[int, Written] = {}
        for written in self._written:
            latest[written.producer] = written
        self._sequences = {}
        for producer, written in sorted(latest.items()):
            after = written.sequence + len(written.values)
            self._sequences[producer] = after
            entry = self._log.producers.get(producer)
            if entry is None:
                self._expect(
                    written.base < self._log.start, f"producer {producer} is forgotten: {written}"
                )
                self._sequences[producer] = 0
                continue
            self._expect(
                entry.last_sequence == after - 1,
                f"producer {producer} is at {entry.last_sequence}, sent {after - 1}",
            )
            self._expect(
                entry.last_offset == written.end - 1,
                f"producer {producer} is at offset {entry.last_offset}, not {written.end - 1}",
            )
        for entry in self._log.producers:
            self._expect(entry.producer_id in latest, f"producer {entry.producer_id} is invented")

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise self._violation(what)

    def _violation(self, what: str) -> Violation:
        return Violation(what, self.world.seed, list(self.world.events))
