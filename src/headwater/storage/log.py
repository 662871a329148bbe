"""One partition's log: an ordered list of segments with what is known about their content.

Produce and replication append to it, fetch reads slices of it, retention and truncation cut its two
ends. It has one owner and is never used from two threads; what waits for the device is handed out
as a job. A failed append leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater import _core
from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Disk
from headwater.model import NO_EPOCH, NO_TIMESTAMP, OffsetAndEpoch, TopicPartition
from headwater.storage import ends, names, reading, recovery, rolling, search, validation
from headwater.storage.checkpoints import CheckpointFile, CheckpointWrite
from headwater.storage.failures import Health
from headwater.storage.flushing import FlushJob
from headwater.storage.places import RecentPlaces
from headwater.storage.producer_state import SentBatch, increment_sequence, note_batch
from headwater.storage.search import TimestampedOffset
from headwater.storage.segment import Segment, segment_at
from headwater.storage.txn_index import AbortedTransaction
from headwater.storage.unsynced import Unsynced
from headwater.storage.validation import Appended, AppendRules, Origin

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RELATIVE_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_CLIENT = Origin.CLIENT  # members of an Enum are slow to look up


class Log:
    # What other modules of this package write methods with is public to them.
    __slots__ = (
        "_config",
        "cleaned_to",
        "disk",
        "end",
        "epoch_file",
        "epochs",
        "health",
        "last_bound",
        "last_flush_ms",
        "on_truncated",
        "path",
        "producer_expiration_ms",
        "producers",
        "recent",
        "recovery_point",
        "reports",
        "rules",
        "segments",
        "size",
        "snapshots",
        "start",
        "swap",
        "topic_id",
        "tp",
        "truncations",
        "unsynced",
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
        self.disk = disk
        self.path = path
        self.tp = tp
        self.topic_id = topic_id
        self.health = health
        self.start = loaded.start
        self.end = loaded.end
        self.recovery_point = loaded.recovery_point
        self.last_flush_ms = now_ms
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.epoch_file = CheckpointFile(disk, f"{path}/{names.LEADER_EPOCHS}")
        self.reports = loaded.reports
        self.segments = loaded.segments
        self.size = sum(segment.size for segment in loaded.segments)
        self.snapshots = loaded.snapshots
        self.producer_expiration_ms = producer_expiration_ms
        self.on_truncated = on_truncated
        self.truncations = 0
        self.cleaned_to = cleaned_to  # compaction has been here; None if never
        self.swap: tuple[Segment, list[Segment]] | None = None  # the new one, those it is made of
        self.unsynced = Unsynced(disk)
        self.recent = RecentPlaces()
        self.last_bound = (
            -1,
            0,
            0,
        )  # the last bound asked for: offset, its segment's base, position
        self.config = config

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
        """Reads, and after an unclean stop repairs, what is in a partition's directory, making it
        if there is none. Blocks on the device; `reports` says what was cut."""
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
            log.health.names += 1
        if is_new or not clean:
            rolling.cover_all(log)
        return log

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self.rules = AppendRules(config, _core.crc32c(self.path.encode()))

    # Appending.

    def append_as_leader(
        self, data: Buffer, *, epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> Appended:
        """Checks, stamps and validation. `data` is changed in place where it can be written to."""
        if origin is not _CLIENT:
            return self._append_own(data, epoch=epoch, now_ms=now_ms, origin=origin)
        if self.health.is_low:
            raise self.health.refuse_clients()
        rules = self.rules
        batch = validation.check_produced(data, rules, self.tp, now_ms=now_ms, from_client=True)
        size = batch.size
        if size != len(data):  # type: ignore[arg-type]  # bytes of one kind or another
            data = validation.only_batch(data, size, self.tp)
        end = self.end
        producer_id = batch.producer_id
        first_sequence = last_sequence = -1
        if producer_id >= 0:
            first_sequence = batch.base_sequence
            last_sequence = increment_sequence(first_sequence, batch.last_offset_delta)
            sent = self.producers.find_duplicate(
                producer_id, batch.producer_epoch, first_sequence, last_sequence
            )
            if sent is not None:
                return Appended(
                    sent.first_offset, sent.last_offset, sent.timestamp, self.start, True, 0
                )
            self.producers.check(batch, end, sequenced=True)
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
        except TypeError:  # a buffer that cannot be written to
            data = bytearray(data)
            max_timestamp = validation.stamp(
                data, batch, rules, base_offset=end, epoch=epoch, now_ms=now_ms
            )
        segment = self._write(data, size, end, last_offset, max_timestamp, now_ms)
        self._took(segment, segment.size, size, end, last_offset, max_timestamp, epoch)
        if producer_id >= 0:
            self.producers.add(
                producer_id,
                batch.producer_epoch,
                SentBatch(first_sequence, last_sequence, end, last_offset, max_timestamp),
                transactional=batch.is_transactional,
            )
        self.producers.end = last_offset + 1
        time = now_ms if rules.log_append_time else NO_TIMESTAMP
        return Appended(end, last_offset, time, self.start, False, size)

    def append_as_follower(self, data: Buffer, *, now_ms: int) -> Appended:
        """Appends batches as their leader stored them. A batch cut short at the end is left out:
        the next fetch brings it whole."""
        batches = validation.whole_batches(data, self.tp)
        if not batches:
            return Appended(self.end, self.end - 1, NO_TIMESTAMP, self.start, False, 0)
        return self._append_stamped(data, batches, now_ms=now_ms)

    def _append_own(self, data: Buffer, *, epoch: int, now_ms: int, origin: Origin) -> Appended:
        if origin is Origin.RAFT:
            validation.check_raft(data, self.rules, self.tp, epoch)
            return self.append_as_follower(data, now_ms=now_ms)
        assert origin is Origin.COORDINATOR, f"{origin} does not lead"
        own = validation.stamp_coordinators(
            data,
            self.rules,
            self.tp,
            self.producers,
            base_offset=self.end,
            epoch=epoch,
            now_ms=now_ms,
        )
        appended = self.append_as_follower(own, now_ms=now_ms)
        if self.rules.log_append_time:
            return appended._replace(log_append_time=now_ms)
        return appended

    def _append_stamped(self, data: Buffer, batches: list[_core.Batch], *, now_ms: int) -> Appended:
        """Appends batches that have their offsets and epochs."""
        expected = self.end
        for batch in batches:
            if batch.base_offset < expected:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.tp} reaches up to {expected} already; a batch that begins at "
                    f"{batch.base_offset} comes too late",
                )
            expected = batch.last_offset + 1
        view = memoryview(data).cast("B")
        total = 0
        # More than a segment holds goes batch by batch; the usual fetch goes in one write.
        whole = batches[-1].position + batches[-1].size <= self.rules.segment_bytes
        for group in [batches] if whole else [[batch] for batch in batches]:
            first, last = group[0], group[-1]
            size = last.position + last.size - first.position
            newest = max(batch.max_timestamp for batch in group)
            segment = self._write(
                view[first.position : first.position + size],
                size,
                first.base_offset,
                last.last_offset,
                newest,
                now_ms,
            )
            position = segment.size
            for batch in group:
                self._took(
                    segment,
                    position,
                    batch.size,
                    batch.base_offset,
                    batch.last_offset,
                    batch.max_timestamp,
                    batch.leader_epoch,
                )
                position += batch.size
                if batch.producer_id >= 0:
                    note_batch(self.producers, batch, data, segment.txn_index)
            self.producers.end = self.end
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
    ) -> Segment:
        """Puts the bytes at the end of the active segment, a new one if it is time for that."""
        segment = self.segments[-1]
        health = self.health
        if health.failure is not None:
            health.check()
        try:
            if segment.must_roll(self.rules, size, last_offset, max_timestamp, now_ms):
                # A segment begins where the one before ends, even if the next batch leaves a gap
                # (recovery takes a gap between segments for a loss), unless it could not hold it.
                fits = last_offset - self.end <= _RELATIVE_MAX
                segment = rolling.begin_segment(self, self.end if fits else base_offset, now_ms)
            if not segment.dirty:
                segment.get_ready()
            segment.file.append(data)
        except OSError as error:
            raise health.refusal(error) from error
        return segment

    def _took(
        self,
        segment: Segment,
        position: int,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        epoch: int,
    ) -> None:
        """Takes note of a batch that was written."""
        segment.appended(
            position, size, last_offset, max_timestamp, self.rules.index_interval_bytes
        )
        self.recent.add(base_offset, position)
        self.end = last_offset + 1
        self.size += size
        if epoch != self.epochs.latest and epoch >= 0:
            self.epochs.assign(epoch, base_offset)

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Begins a new segment at the end of the log, unless the active one is empty."""
        if not self.segments[-1].size:
            return
        with self.health.errors():
            rolling.begin_segment(self, self.end, now_ms)

    # Reading.

    read = reading.read
    offset_bound = reading.offset_bound

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [from, to)."""
        return search.aborted(self.segments, from_offset, to_offset)

    def offset_for_time(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is not below this one."""
        with self.health.errors():
            return search.first_not_before(self.segments, timestamp, log_start=self.start)

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the largest timestamp of all."""
        with self.health.errors():
            return search.with_max_timestamp(self.segments)

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
        """The largest epoch at or below this one and its end; (-1, -1) if there is none."""
        return self.epochs.end_of(epoch, self.end)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where what is not yet decided begins: an open transaction, or one whose end is not yet
        known to be replicated (`last_stable_offset` tells how far replication is)."""
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.start)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where (exclusive) readers of committed data may read."""
        self.producers.high_watermark_at(high_watermark)
        first = self.first_unstable_offset
        return high_watermark if first is None else min(first, high_watermark)

    # The two ends.

    delete_records_before = ends.delete_records_before
    retire = ends.retire
    truncate_to = ends.truncate_to
    truncate_and_start_at = ends.truncate_and_start_at

    # Durability.

    @property
    def trusted_end(self) -> int:
        """Up to where a start need not look: what is durable with its indexes. Those of the active
        segment are behind; it is looked at as a whole anyway."""
        active, first = self.segments[-1], self.unsynced.first_without_indexes
        end = min(self.recovery_point, active.base) if active.dirty else self.recovery_point
        return end if first is None else min(first, end)

    @property
    def unflushed_messages(self) -> int:
        return self.end - self.recovery_point

    def flush_job(self, upto: int | None = None) -> FlushJob | None:
        """What makes all below `upto` (the end of the log, if not given) durable, or None if it
        already is. Segments from `upto` on are left alone."""
        upto = self.end if upto is None else min(upto, self.end)
        if upto <= self.recovery_point and not self.unsynced:
            return None
        place = segment_at(self.segments, self.recovery_point)
        files = [s.file for s in self.segments[place:] if s.base < upto and s.size]
        for file in files:
            file.hold()
        epochs = self.save_epochs(upto)
        paths, folders = self.unsynced.take()
        return FlushJob(
            disk=self.disk,
            health=self.health,
            upto=upto,
            truncations=self.truncations,
            files=tuple(files),
            paths=paths,
            epochs=epochs,
            folders=folders,
            names=self.health.names,
            indexes=self.unsynced.take_indexes(),
        )

    def not_flushed(self, job: FlushJob) -> None:
        """The job has failed, as it does on a full disk: the next one has its work too."""
        self.unsynced.give_back(job)
        if job.epochs is not None:
            self.epochs.not_saved()

    def flushed(self, job: FlushJob, now_ms: int | None = None) -> None:
        """The job has run: what it covers need not be checked after a crash."""
        self.unsynced.done(job)
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, job.upto)
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def seal(self) -> None:
        """Writes indexes and producer states as they are now, for a start that trusts them. The
        next flush job makes them durable."""
        with self.health.errors():
            active = self.segments[-1]
            if active.dirty:
                rolling.cover_indexes(self, active)
                active.seal()
            rolling.take_snapshot(self)

    def close(self, clean: bool) -> None:
        """Ends the use of the log; files close with their last reader. A clean close leaves on disk
        all that the next start needs; to be durable it must have been sealed and flushed before."""
        if clean and self.health.is_online:
            self.seal()
            epochs = self.save_epochs(self.end)
            if epochs is not None:
                with self.health.errors():
                    epochs.run()
        for segment in self.segments:
            segment.close()
        if self.swap is not None:
            self.swap[0].close()

    def cover(self, path: str) -> None:
        """Lets the next flush job make this file durable too."""
        self.unsynced.add_file(path)

    def move_to(self, path: str) -> None:
        """Renames the directory of the log."""
        self.disk.rename(self.path, path)
        self.health.names += 1
        self.unsynced.move(self.path, path)
        self.path = path
        self.snapshots.folder = path
        self.epoch_file.path = f"{path}/{names.LEADER_EPOCHS}"
        for segment in self.segments:
            segment.move_to(path)
        if self.swap is not None:
            self.swap[0].move_to(path)

    def expire_producers(self, now_ms: int) -> None:
        """Forgets producers that have been silent for longer than they are remembered."""
        if len(self.producers):
            self.producers.expire(now_ms, self.producer_expiration_ms)

    def save_epochs(self, upto: int) -> CheckpointWrite | None:
        """The write that brings the epoch checkpoint up to date, None if it is."""
        content = self.epochs.take_unsaved(upto)
        return None if content is None else self.epoch_file.prepare(lambda: content)


def _gaps_to(cleaned_to: int | None, recovery_point: int | None) -> int:
    """Up to where compaction may have left gaps between segments. It only touches what is flushed,
    and says so in the checkpoints before; one that cannot be read leaves us without a bound."""
    if cleaned_to is None:
        return 0
    return _OFFSET_MAX if recovery_point is None else max(cleaned_to, recovery_point)
