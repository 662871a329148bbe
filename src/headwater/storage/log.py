"""One partition's log: its segments and what is known of their content.

Produce and replication append to it, fetch reads slices of it, retention and truncation cut its two
ends, compaction replaces segments in its middle. It has one owner and is never used from two
threads; what waits for the device is returned as a job. A failed append leaves it unchanged.

Only `Log` changes its parts: `Segments` (the files), `FlushState` (what is durable),
`ProducerStates` and their `Snapshots`, `EpochCache`. Every change except an append, which is too
frequent, ends with `_check`: the invariants between the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater import _core
from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Disk, FileSlice
from headwater.model import NO_EPOCH, NO_TIMESTAMP, OffsetAndEpoch, TopicPartition
from headwater.storage import names, recovery, retention, validation
from headwater.storage.checkpoints import CheckpointFile, CheckpointWrite, write_topic_id
from headwater.storage.failures import Health, StorageFailed, is_full
from headwater.storage.flush import FlushJob, FlushState, TruncationJob
from headwater.storage.producer_state import (
    Marker,
    ProducerStates,
    Replay,
    SentBatch,
    Verification,
    increment_sequence,
    note_batch,
    render_marker,
)
from headwater.storage.retention import Reason, RetiredSegment
from headwater.storage.segment import Segment
from headwater.storage.segments import LogSlice, Segments, TimestampedOffset
from headwater.storage.txn_index import AbortedTransaction
from headwater.storage.validation import Appended, AppendRules, Origin

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RELATIVE_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_NEVER_MS = 2**63 - 1
_RECALLED_BYTES = 4 << 20  # usually more than the last five requests of each producer
_CLIENT = Origin.CLIENT  # members of an Enum are slow to look up


class Log:
    __slots__ = (
        "_config",
        "_disk",
        "_epoch_file",
        "_flush",
        "_on_truncated",
        "_producer_expiration_ms",
        "_rules",
        "_snapshots",
        "_swap",
        "cleaned_to",
        "end",
        "epochs",
        "health",
        "path",
        "producers",
        "reports",
        "segments",
        "start",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        disk: Disk,
        path: str,
        tp: TopicPartition,
        *,
        topic_id: bytes,
        config: TopicConfig,
        health: Health,
        loaded: recovery.Loaded,
        now_ms: int,
        producer_expiration_ms: int,
        on_truncated: Callable[[], None] | None,
        cleaned_to: int | None,
    ) -> None:
        self._disk = disk
        self.path = path
        self.tp = tp
        self.topic_id = topic_id
        self.health = health
        self.start = loaded.start
        self.end = loaded.end
        self.segments = Segments(loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.reports = loaded.reports
        self.cleaned_to = cleaned_to  # up to where it is compacted; None if never
        self._snapshots = loaded.snapshots
        self._flush = FlushState(disk, health, recovery_point=loaded.recovery_point, now_ms=now_ms)
        self._epoch_file = CheckpointFile(disk, f"{path}/{names.LEADER_EPOCHS}")
        self._producer_expiration_ms = producer_expiration_ms
        self._on_truncated = on_truncated
        self._swap: tuple[Segment, list[Segment]] | None = None  # the new segment, and its sources
        self.configure(config)
        self._check()

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        tp: TopicPartition,
        *,
        topic_id: bytes,
        config: TopicConfig,
        now_ms: int,
        health: Health | None = None,
        start: int = 0,
        recovery_point: int | None = None,
        clean: bool = False,
        producer_expiration_ms: int = 86_400_000,
        on_truncated: Callable[[], None] | None = None,
        cleaned_to: int | None = None,
    ) -> Log:
        """Reads the directory of a partition, creating it if there is none, and repairs it after
        an unclean stop. Blocks on the device; `reports` says what was cut."""
        is_new = not disk.exists(path)
        if is_new:
            disk.make_dirs(path)
        loaded = recovery.load(
            disk,
            path,
            tp,
            start=start,
            recovery_point=recovery_point or 0,
            clean=clean,
            index_interval_bytes=config.index_interval_bytes,
            gaps_to=_gaps_to(cleaned_to, recovery_point),
            now_ms=now_ms,
            producer_expiration_ms=producer_expiration_ms,
        )
        log = cls(
            disk,
            path,
            tp,
            topic_id=topic_id,
            config=config,
            health=health or Health(path.rpartition("/")[0]),
            loaded=loaded,
            now_ms=now_ms,
            producer_expiration_ms=producer_expiration_ms,
            on_truncated=on_truncated,
            cleaned_to=cleaned_to,
        )
        if is_new:
            log.health.add_name()
        if is_new or not clean:
            log._add_all_to_dirty()
        return log

    def _check(self) -> None:
        """Asserts what holds between the parts after every change."""
        assert self.start <= self.end, f"{self.tp} starts at {self.start}, ends at {self.end}"
        recovery_point, base = self._flush.recovery_point, self.segments.active.base
        assert recovery_point <= self.end, f"{self.tp}: {recovery_point} durable of {self.end}"
        assert base <= self.end, f"{self.tp}: the active segment begins at {base} after {self.end}"
        assert self._swap is None or self._swap[1][-1] is not self.segments.active

    @property
    def config(self) -> TopicConfig:
        return self._config

    def configure(self, config: TopicConfig) -> None:
        """Takes new settings, valid from the next append on."""
        self._config = config
        self._rules = AppendRules(config, _core.crc32c(self.path.encode()))

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return self.segments.size

    @property
    def local_start(self) -> int:
        """The first offset in the segments here. Offsets from `start` up to it would be in another
        tier; there is none yet."""
        return max(self.start, self.segments[0].base)

    # Appending.

    def append_as_leader(
        self,
        data: Buffer,
        *,
        epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        guard: Verification | None = None,
    ) -> Appended:
        """Checks, stamps and appends a batch. Changes `data` in place if it is writable. The first
        batch of a transaction needs a guard (`ProducerStates.begin_verification`)."""
        if origin is not _CLIENT:
            return self._append_own(data, epoch=epoch, now_ms=now_ms, origin=origin, guard=guard)
        if self.health.is_low:
            raise self.health.refuse_clients()
        rules = self._rules
        batch = validation.check_produced(data, rules, self.tp, now_ms=now_ms, from_client=True)
        size = batch.size
        if size != len(data):  # type: ignore[arg-type]  # Buffer has no len()
            data = validation.only_batch(data, size, self.tp)
        end = self.end
        producer_id = batch.producer_id
        first_sequence = last_sequence = -1
        producers = self.producers
        is_transactional = False
        if producer_id >= 0:
            first_sequence = batch.base_sequence
            last_sequence = increment_sequence(first_sequence, batch.last_offset_delta)
            sent = producers.find_duplicate(
                producer_id, batch.producer_epoch, first_sequence, last_sequence
            )
            if sent is not None:
                return Appended(
                    sent.first_offset, sent.last_offset, sent.timestamp, self.start, True, 0
                )
            is_transactional = batch.is_transactional
            if is_transactional:
                producers.check_verified(producer_id, batch.producer_epoch, guard)
            try:
                producers.check(batch, sequenced=True)
            except ApiError:
                sent = self._recall(batch, last_sequence)
                if sent is None:
                    raise
                return Appended(
                    sent.first_offset, sent.last_offset, sent.timestamp, self.start, True, 0
                )
        if rules.codec is not None and rules.codec != batch.codec:
            data = validation.recompress(data, batch, rules, self.tp)
            size = len(data)
        if size > rules.segment_bytes:
            raise validation.too_large_for_segment(size, rules, self.tp)
        last_offset = end + batch.last_offset_delta
        try:
            max_timestamp = validation.stamp(
                data, batch, rules, base_offset=end, epoch=epoch, now_ms=now_ms
            )
        except TypeError:  # the buffer is read-only
            data = bytearray(data)
            max_timestamp = validation.stamp(
                data, batch, rules, base_offset=end, epoch=epoch, now_ms=now_ms
            )
        self._write(data, size, end, last_offset, max_timestamp, now_ms)
        self.segments.add_batch(size, end, last_offset, max_timestamp, rules.index_interval_bytes)
        self.end = last_offset + 1
        if epoch != self.epochs.latest and epoch >= 0:
            self.epochs.assign(epoch, end)
        if producer_id >= 0:
            producers.add(
                producer_id,
                batch.producer_epoch,
                SentBatch(first_sequence, last_sequence, end, last_offset, max_timestamp),
                transactional=is_transactional,
            )
        time = now_ms if rules.log_append_time else NO_TIMESTAMP
        return Appended(end, last_offset, time, self.start, False, size)

    def _recall(self, batch: _core.Batch, last_sequence: int) -> SentBatch | None:
        """Returns a batch that came a second time, and that the producer's state has forgotten: the
        log was loaded or cut since. Reads the end of the log, once after each load."""
        producers = self.producers
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if not producers.has_forgotten(producer_id, epoch):
            return None
        with self.health.errors():
            producers.recall(self.segments.last_batches(_RECALLED_BYTES))
        return producers.find_duplicate(producer_id, epoch, batch.base_sequence, last_sequence)

    def append_as_follower(self, data: Buffer, *, now_ms: int) -> Appended:
        """Appends batches as their leader stored them. A batch that is cut short at the end is left
        out: the next fetch brings it whole."""
        batches = validation.whole_batches(data, self.tp)
        if not batches:
            return Appended(self.end, self.end - 1, NO_TIMESTAMP, self.start, False, 0)
        return self._append_stamped(data, batches, now_ms=now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commits: bool,
        coordinator_epoch: int,
        transaction_version: int,
        epoch: int,
        now_ms: int,
    ) -> Appended:
        """Appends the end of a producer's transaction, on behalf of its coordinator."""
        marker = Marker(not commits, coordinator_epoch)
        self.producers.check_marker(
            producer_id, producer_epoch, marker, transaction_version=transaction_version
        )
        batch = render_marker(
            producer_id,
            producer_epoch,
            marker,
            base_offset=self.end,
            leader_epoch=epoch,
            now_ms=now_ms,
            log_append_time=self._rules.log_append_time,
        )
        return self.append_as_follower(batch, now_ms=now_ms)

    def _append_own(
        self,
        data: Buffer,
        *,
        epoch: int,
        now_ms: int,
        origin: Origin,
        guard: Verification | None,
    ) -> Appended:
        if origin is Origin.RAFT:
            validation.check_raft(data, self._rules, self.tp, epoch)
            return self.append_as_follower(data, now_ms=now_ms)
        assert origin is Origin.COORDINATOR, f"{origin} does not lead"
        own = validation.stamp_coordinators(
            data,
            self._rules,
            self.tp,
            self.producers,
            base_offset=self.end,
            epoch=epoch,
            now_ms=now_ms,
            guard=guard,
        )
        appended = self.append_as_follower(own, now_ms=now_ms)
        if self._rules.log_append_time:
            return appended._replace(log_append_time=now_ms)
        return appended

    def _append_stamped(self, data: Buffer, batches: list[_core.Batch], *, now_ms: int) -> Appended:
        """Appends batches that already have offsets and epochs."""
        expected = self.end
        for batch in batches:
            if batch.base_offset < expected:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.tp} already ends at {expected}; cannot append a batch that begins at "
                    f"{batch.base_offset}",
                )
            expected = batch.last_offset + 1
        view = memoryview(data).cast("B")
        total = 0
        # More than a segment holds goes batch by batch; the usual fetch goes in one write.
        whole = batches[-1].position + batches[-1].size <= self._rules.segment_bytes
        for group in [batches] if whole else [[batch] for batch in batches]:
            first, last = group[0], group[-1]
            size = last.position + last.size - first.position
            newest = max(batch.max_timestamp for batch in group)
            self._write(
                view[first.position : first.position + size],
                size,
                first.base_offset,
                last.last_offset,
                newest,
                now_ms,
            )
            self.segments.add_batches(group, self._rules.index_interval_bytes)
            self.end = last.last_offset + 1
            for batch in group:
                if batch.leader_epoch != self.epochs.latest and batch.leader_epoch >= 0:
                    self.epochs.assign(batch.leader_epoch, batch.base_offset)
                if batch.producer_id >= 0:
                    try:
                        note_batch(self.producers, batch, data, self.segments.active.txn_index)
                    except OSError as error:
                        raise self.health.refusal(error) from error
            total += size
        base_offset, last_offset = batches[0].base_offset, batches[-1].last_offset
        return Appended(base_offset, last_offset, NO_TIMESTAMP, self.start, False, total)

    def _write(
        self,
        data: Buffer,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Writes the bytes to the active segment, or to a new one if it is time to roll."""
        segment = self.segments.active
        health = self.health
        if health.failure is not None:
            health.check()
        try:
            if segment.must_roll(self._rules, size, last_offset, max_timestamp, now_ms):
                # A segment begins where the one before ends, even if the next batch leaves a gap
                # (recovery takes a gap between segments for a loss), unless it could not hold it.
                fits = last_offset - self.end <= _RELATIVE_MAX
                segment = self._begin_segment(self.end if fits else base_offset, now_ms)
            if not segment.dirty:
                segment.get_ready()
            segment.file.append(data)
        except OSError as error:
            raise health.refusal(error) from error

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Begins a new segment at the end of the log, unless the active one is empty."""
        if self.segments.active.size:
            with self.health.errors():
                self._begin_segment(self.end, now_ms)

    def _begin_segment(self, base: int, now_ms: int) -> Segment:
        """Closes the active segment and begins another, unless it is empty and begins there
        already."""
        active, dirty = self.segments.active, self._flush.dirty
        if active.base == base:
            assert active.size == 0, f"{self.tp} already has a segment {base}"
            return active
        # If a crash kept the new name and lost an older one, the log would seem to begin later.
        # After each roll a flush is due, so this seldom has to wait.
        dirty.sync_folders()
        # Even if the disk is full: names that were created and removed again must not come back.
        dirty.add_folder(self.path)
        active.seal()
        segment = Segment.create(
            self._disk,
            self.path,
            base,
            now_ms=now_ms,
            preallocate_bytes=self._rules.preallocate_bytes,
        )
        if active.size:
            self._add_indexes_to_dirty(active)
        else:  # its successor begins too far away for its indexes
            for path in self.segments.pop().rename(names.DELETED):
                self._disk.remove(path)
            active.close()
        self.segments.add(segment)
        self._take_snapshot(base)
        return segment

    def _take_snapshot(self, offset: int) -> None:
        """Writes a snapshot of the producers' states at an offset."""
        written = self._snapshots.save(self.producers, offset)
        if written is not None:
            self._flush.dirty.add_file(written)

    def _add_indexes_to_dirty(self, segment: Segment) -> None:
        kinds = names.SEGMENT_SUFFIXES[1:]
        self._flush.dirty.add_indexes(segment.base, (segment.path(kind) for kind in kinds))

    def _add_all_to_dirty(self) -> None:
        """Makes the next flush sync everything: it is unknown what the last run made durable."""
        dirty = self._flush.dirty
        dirty.add_folder(self.path)
        dirty.add_folder(self.path.rpartition("/")[0])
        for segment in self.segments.since(self.recovery_point)[:-1]:
            self._add_indexes_to_dirty(segment)
        for offset in self._snapshots.offsets:
            dirty.add_file(self._snapshots.path(offset))
        dirty.add_file(f"{self.path}/{names.PARTITION_METADATA}")

    # Reading.

    def read(
        self, offset: int, *, bytes_max: int, upto: int, at_least_one: bool = True
    ) -> LogSlice:
        """Returns the bytes from the batch that has `offset` on, up to `bytes_max` or, if the first
        batch alone is larger and `at_least_one` is set, that batch. Never includes a batch that
        begins at or after `upto`."""
        if offset < self.start or offset > self.end:
            raise self.out_of_range(offset)
        if offset >= upto:
            return LogSlice(None, 0, self.segments.active.base, 0)
        try:
            return self.segments.read(offset, bytes_max, upto, self.end, at_least_one)
        except OSError as error:
            raise self.health.refusal(error) from error

    def load(self, found: FileSlice) -> bytes:
        """Reads the bytes of a slice, for a worker. An error of the device takes the directory
        offline."""
        with self.health.errors():
            return found.read()

    def offset_bound(self, read: LogSlice) -> int:
        """Returns an offset at or above all that a slice may contain, without reading it."""
        return self.segments.offset_bound(read, self.end)

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that overlap [from, to)."""
        with self.health.errors():
            return self.segments.aborted(from_offset, to_offset)

    def offset_for_time(self, timestamp: int) -> TimestampedOffset | None:
        """Returns the first record whose timestamp is not below this one."""
        with self.health.errors():
            return self.segments.first_not_before(timestamp, log_start=self.start)

    def max_timestamp(self) -> TimestampedOffset | None:
        """Returns the first record that has the largest timestamp."""
        with self.health.errors():
            return self.segments.with_max_timestamp()

    def earliest(self) -> TimestampedOffset:
        entry = self.epochs.earliest()
        epoch = entry[0] if entry is not None and entry[1] <= self.start else NO_EPOCH
        return TimestampedOffset(NO_TIMESTAMP, self.start, epoch)

    def latest(self) -> TimestampedOffset:
        return TimestampedOffset(NO_TIMESTAMP, self.end, self.epochs.latest)

    def out_of_range(self, offset: int) -> ApiError:
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.tp} has offsets {self.start} to {self.end}, not {offset}",
        )

    # Epochs and transactions.

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.assign(epoch, start_offset)

    def epoch_end(self, epoch: int) -> OffsetAndEpoch:
        """Returns the largest epoch at or below this one and its end; (-1, -1) if there is none."""
        return self.epochs.end_of(epoch, self.end)

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the oldest transaction that is open, or whose end is not known to be
        replicated yet (`last_stable_offset` takes the high watermark)."""
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.start)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset (exclusive) up to which readers of committed data may read."""
        self.producers.high_watermark_at(high_watermark)
        first = self.first_unstable_offset
        return high_watermark if first is None else min(first, high_watermark)

    # The start.

    def delete_records_before(self, offset: int) -> None:
        """Moves the start of the log; `delete_old_segments` removes the segments below it."""
        if offset > self.end:
            raise self.out_of_range(offset)
        if offset <= self.start:
            return
        self.start = offset
        self.epochs.truncate_from_start(offset)
        self.producers.start_at(offset)
        self._check()

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[RetiredSegment]:
        """Takes out the segments that retention no longer keeps, and returns them."""
        with self.health.errors():
            chosen = list(
                retention.expired(
                    self.segments,
                    self.config,
                    log_start=self.start,
                    log_end=self.end,
                    high_watermark=high_watermark,
                    now_ms=now_ms,
                )
            )
            if not chosen:
                return []
            self.abandon_swap()
            takes_all = len(chosen) == len(self.segments)
            if takes_all:
                self._begin_segment(self.end, now_ms)
            # What stays must be durable first: a crash that kept the removals but lost the new
            # name would leave no segment to say where the log ends, and one that lost the
            # producers' snapshot would bring back sequences of long ago.
            if takes_all or self.recovery_point <= self.segments[len(chosen)].base:
                self._flush_now()
            retired = [self._retire(segment, reason) for segment, reason in chosen]
            # What was never flushed must not come back below a recovery point that has passed it.
            self._flush.dirty.add_folder(self.path)
            self.segments.remove_first(len(chosen))
            self.delete_records_before(self.local_start)
        self._check()
        return retired

    def _flush_now(self) -> None:
        """Flushes and waits for the device. Callers flush in a worker before, so that little is
        left. On a full disk, what cannot be written must not prevent retention from freeing
        space."""
        job = self.flush_job()
        if job is None:
            return
        try:
            job.run()
        except StorageFailed:
            raise
        except ApiError:
            self.not_flushed(job)
        else:
            self.flushed(job)

    def _retire(
        self, segment: Segment, reason: Reason, *, with_snapshot: bool = True
    ) -> RetiredSegment:
        """Renames the files of a segment, and the snapshot at its base, to `.deleted`. They are
        closed with their last reader."""
        try:
            paths = segment.rename(names.DELETED)
            segment.close()
            if with_snapshot:
                paths += self._snapshots.rename(segment.base, names.DELETED)
        except OSError as error:
            if not is_full(error):
                raise
            # A new name may need space. The segment must not be half there, nor, after compaction,
            # beside the one that replaces it: its files are removed without delay.
            paths = []
            segment.remove()
            if with_snapshot:
                self._snapshots.drop(lambda offset: offset == segment.base)
        return RetiredSegment(
            self._disk, self.health, segment.base, segment.size, reason, tuple(paths)
        )

    # The end. A cut has three steps: the log is cut at once (`cut_at`, `begin_anew`); a worker runs
    # the job that is returned, which makes it durable; `cut_ended` takes note. Nothing may be
    # appended meanwhile. `truncate_to` and `truncate_and_start_at` do all three and block.

    def truncate_to(self, offset: int) -> list[RetiredSegment]:
        """Drops everything from `offset` on. Returns the segments that were dropped whole."""
        return self._finish_cut(self.cut_at(offset))

    def truncate_and_start_at(
        self, offset: int, log_start: int | None = None
    ) -> list[RetiredSegment]:
        """Drops everything and begins anew at an offset. Returns the dropped segments."""
        return self._finish_cut(self.begin_anew(offset, log_start))

    def _finish_cut(self, job: TruncationJob | None) -> list[RetiredSegment]:
        if job is None:
            return []
        job.run()
        self.cut_ended(job)
        if self._on_truncated is not None:
            self._on_truncated()
        return job.retired

    def cut_at(self, offset: int) -> TruncationJob | None:
        """Drops everything from `offset` on. Returns the job that makes it durable, None if there
        is nothing to drop."""
        if offset >= self.end:
            self.epochs.truncate_from_end(self.end)
            return None
        if offset < self.segments[0].base:
            return self.begin_anew(offset)
        with self.health.errors():
            self.abandon_swap()
            retired = []
            while self.segments.active.base > offset:
                retired.append(self._retire(self.segments.pop(), Reason.TRUNCATION))
            self.segments.truncate_active(offset)
            self._reset_ends(min(self.start, offset), offset)
            self.epochs.truncate_from_end(offset)
            replay = self._reload_producers(offset)
            if self._has_gap():
                replay.run()
                self.producers = replay.producers
                self._begin_segment(self._reached(), self._flush.last_flush_ms)
            job = self._truncation_job(retired, replay)
        self._check()
        return job

    def begin_anew(self, offset: int, log_start: int | None = None) -> TruncationJob:
        """Drops everything; the log begins anew at an offset. Returns the job that makes it
        durable."""
        with self.health.errors():
            self.abandon_swap()
            retired = [
                self._retire(self.segments.pop(), Reason.TRUNCATION)
                for _ in range(len(self.segments))
            ]
            created_ms = self._flush.last_flush_ms
            self.segments.add(Segment.create(self._disk, self.path, offset, now_ms=created_ms))
            self._flush.dirty.add_folder(self.path)
            self._reset_ends(offset if log_start is None else log_start, offset)
            self.epochs.clear()
            self._snapshots.restart_at(offset)
            self.producers.clear()
            job = self._truncation_job(retired, Replay(self.producers, (), offset, offset))
        self._check()
        return job

    def _reset_ends(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self._flush.truncate(end)
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, end)

    def _reload_producers(self, end: int) -> Replay:
        """Returns what restores the states as they were at a lower end."""
        self._snapshots.drop(lambda offset: offset > end)
        return self._snapshots.restore(
            ProducerStates(self.tp),
            self.segments[:],
            start=self.start,
            end=end,
            now_ms=self._flush.last_flush_ms,
            expiration_ms=self._producer_expiration_ms,
        )

    def _has_gap(self) -> bool:
        """Returns whether a cut fell where compaction, here or at the leader, has left nothing, so
        that the next append leaves a gap. The gap must be within a segment: between two it looks
        like a loss."""
        return bool(self.segments.active.size) and self._reached() < self.end

    def _reached(self) -> int:
        active = self.segments.active
        reached = active.base
        for _, _, _, last, _ in active.headers(active.index.lookup(self.end)):
            reached = last + 1
        return reached

    def _truncation_job(self, retired: list[RetiredSegment], replay: Replay) -> TruncationJob:
        dirty = self._flush.dirty
        dirty.add_folder(self.path)
        file = self.segments.active.file
        file.hold()
        return TruncationJob(
            disk=self._disk,
            health=self.health,
            truncations=self.truncations,
            retired=retired,
            replay=replay,
            file=file,
            folders=dirty.take_folders(),
            epochs=self._save_epochs(self.end),
        )

    def cut_ended(self, job: TruncationJob) -> None:
        """Takes note of a job that has run."""
        if job.epochs_failed:
            self.epochs.not_saved()
        if job.truncations == self.truncations:
            self.producers = job.replay.producers
        self._check()

    # Compaction's last step: a new segment takes the place of some that follow each other. It was
    # made and synced as `.cleaned`. After each of the three calls (`begin_swap`, `commit_swap`,
    # `end_swap`) the folder is synced in a worker, so that at every moment a start finds either all
    # of the old segments (and drops the new one) or all of the new.

    def begin_swap(self, cleaned: Segment, bases: Sequence[int], *, truncations: int) -> bool:
        """Renames `.cleaned` to `.swap`: from now on a start would finish the swap. Returns False
        if the segments that it was made of have changed."""
        place = self.segments.at(bases[0])
        sources = self.segments[place : place + len(bases)]
        if (
            truncations != self.truncations
            or [segment.base for segment in sources] != list(bases)
            or sources[-1] is self.segments.active
        ):
            return False
        assert self._swap is None, f"{self.tp} has a swap under way"
        with self.health.errors():
            try:
                cleaned.resuffix(names.SWAP)
            except OSError:
                # As long as a file is `.cleaned`, a start takes none of the others for whole.
                cleaned.remove(names.CLEANED)
                raise
        self._swap = cleaned, sources
        self._check()
        return True

    def commit_swap(self) -> list[RetiredSegment] | None:
        """Gives readers the new segment and retires the old ones, the oldest first: a tombstone
        must not go before what it deletes. Returns None if the swap was abandoned meanwhile."""
        if self._swap is None:
            return None
        cleaned, sources = self._swap
        self._swap = None
        self.segments.replace(sources, cleaned)
        self._check()
        with self.health.errors():
            return [
                self._retire(source, Reason.COMPACTION, with_snapshot=source.base != cleaned.base)
                for source in sources
            ]

    def end_swap(self) -> None:
        """Gives the new segment its final name, once the old ones are durably gone."""
        with self.health.errors():
            for segment in self.segments:
                if segment.suffix:
                    segment.resuffix("")
                    self._flush.dirty.add_folder(self.path)

    def abandon_swap(self) -> None:
        """Removes the new segment: what is about to be cut must not come back with a swap that a
        start finishes."""
        if self._swap is not None:
            self._swap[0].remove()
            self._swap = None
            self._flush.dirty.add_folder(self.path)

    def mark_cleaned(self, offset: int | None) -> None:
        """Records how far the log is compacted."""
        self.cleaned_to = offset

    # Durability.

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is durable."""
        return self._flush.recovery_point

    @property
    def truncations(self) -> int:
        """The number of truncations in this run."""
        return self._flush.truncations

    @property
    def trusted_end(self) -> int:
        """The offset below which a start need not scan: everything is durable with its indexes. The
        active segment, whose indexes are behind, is scanned as a whole."""
        active, end = self.segments.active, self._flush.recovery_point
        if active.dirty:
            end = min(end, active.base)
        first = self._flush.dirty.first_without_indexes
        return end if first is None else min(first, end)

    @property
    def unflushed_messages(self) -> int:
        return self.end - self._flush.recovery_point

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether something has been unflushed for `flush.ms`."""
        flush_ms, flush = self._config.flush_ms, self._flush
        if flush_ms == _NEVER_MS or flush.recovery_point >= self.end:
            return False
        return now_ms - flush.last_flush_ms >= flush_ms

    def flush_checked(self, now_ms: int) -> None:
        """Restarts the interval of `flush.ms`."""
        self._flush.checked(now_ms)

    def flush_job(self, upto: int | None = None) -> FlushJob | None:
        """Returns the job that makes everything below `upto` (by default the end of the log)
        durable, None if it already is. Segments from `upto` on are left alone."""
        upto = self.end if upto is None else min(upto, self.end)
        if upto <= self.recovery_point and not self._flush.dirty:
            return None
        unsynced = self.segments.since(self.recovery_point)
        files = [segment.file for segment in unsynced if segment.base < upto and segment.size]
        epochs = self._save_epochs(max(upto, self.recovery_point))
        return self._flush.job(upto, files, epochs)

    def not_flushed(self, job: FlushJob) -> None:
        """Takes back a job that failed, as on a full disk: the next one does its work too."""
        self._flush.failed(job)
        if job.epochs is not None:
            self.epochs.not_saved()

    def flushed(self, job: FlushJob) -> None:
        """Takes note of a job that has run: what it covers need not be checked after a crash."""
        self._flush.done(job)
        self._check()

    def _save_epochs(self, upto: int) -> CheckpointWrite | None:
        """Returns the write that brings the epoch checkpoint up to date, None if it is."""
        content = self.epochs.take_unsaved(upto)
        return None if content is None else self._epoch_file.prepare(lambda: content)

    def seal(self) -> None:
        """Writes indexes and producer states, for a start that trusts them. The next flush job
        makes them durable."""
        with self.health.errors():
            active = self.segments.active
            if active.dirty:
                self._add_indexes_to_dirty(active)
                active.seal()
            self._take_snapshot(self.end)

    def close(self, clean: bool) -> None:
        """Closes the log; files close with their last reader. A clean close leaves on disk all that
        the next start needs; to be durable, the log must have been sealed and flushed before."""
        if clean and self.health.is_online:
            self.seal()
            epochs = self._save_epochs(self.end)
            if epochs is not None:
                with self.health.errors():
                    epochs.run()
        for segment in self.segments:
            segment.close()
        if self._swap is not None:
            self._swap[0].close()

    # The directory.

    def move_to(self, path: str) -> None:
        """Renames the directory of the log."""
        self._disk.rename(self.path, path)
        self.health.add_name()
        self._flush.dirty.move(self.path, path)
        self.path = path
        self._snapshots.move_to(path)
        self._epoch_file.move_to(f"{path}/{names.LEADER_EPOCHS}")
        for segment in self.segments:
            segment.move_to(path)
        if self._swap is not None:
            self._swap[0].move_to(path)

    def write_topic_id(self, topic_id: bytes) -> None:
        """Writes the topic's id into the directory. The next flush makes it durable."""
        with self.health.errors():
            self._flush.dirty.add_file(write_topic_id(self._disk, self.path, topic_id))
        self.topic_id = topic_id

    def expire_producers(self, now_ms: int, expiration_ms: int | None = None) -> None:
        """Forgets producers that have been idle for longer than they are remembered."""
        if expiration_ms is not None:
            self._producer_expiration_ms = expiration_ms
        self.producers.expire(now_ms, self._producer_expiration_ms)


def _gaps_to(cleaned_to: int | None, recovery_point: int | None) -> int:
    """Returns the offset up to which compaction may have left gaps between segments. It only
    touches flushed segments, and the checkpoints say so before; without a readable checkpoint there
    is no bound."""
    if cleaned_to is None:
        return 0
    return _OFFSET_MAX if recovery_point is None else max(cleaned_to, recovery_point)
