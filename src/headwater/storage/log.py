"""One partition's log: an ordered list of segments with what is known about their content.

Produce and replication append to it, fetch reads slices of it, retention and truncation cut its two
ends. It has one owner and is never used from two threads; what waits for the device is handed out
as a job. A failed append leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater import _core
from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Disk, FileSlice
from headwater.model import NO_EPOCH, NO_TIMESTAMP, OffsetAndEpoch, TopicPartition
from headwater.storage import appends, names, own_appends, recovery, retention, search
from headwater.storage.appends import Appended, AppendRules, Origin
from headwater.storage.failures import Health, StorageFailed, is_full
from headwater.storage.flushing import FlushJob
from headwater.storage.places import RecentPlaces
from headwater.storage.producers import SentBatch, increment_sequence
from headwater.storage.replay import note_batch
from headwater.storage.retention import Reason, RetiredSegment
from headwater.storage.search import TimestampedOffset
from headwater.storage.segment import Segment, segment_at
from headwater.storage.txn_index import AbortedTransaction
from headwater.storage.unsynced import Unsynced

if TYPE_CHECKING:
    from typing_extensions import Buffer

_RELATIVE_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_CLIENT = Origin.CLIENT  # members of an Enum are slow to look up


class LogSlice(NamedTuple):
    """Bytes of a segment file for a reader. They begin with the batch that has the offset asked
    for and may end within a batch."""

    slice: FileSlice | None
    size: int
    segment_base: int
    position: int


class Log:
    __slots__ = (
        "_config",
        "_disk",
        "_on_truncated",
        "_producer_expiration_ms",
        "_recent",
        "_rules",
        "_segments",
        "_snapshots",
        "_swap",
        "_unsynced",
        "_upto",
        "cleaned_to",
        "end",
        "epochs",
        "health",
        "last_flush_ms",
        "path",
        "producers",
        "recovery_point",
        "reports",
        "size",
        "start",
        "topic_id",
        "tp",
        "truncations",
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
        self.recovery_point = loaded.recovery_point
        self.last_flush_ms = now_ms
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.reports = loaded.reports
        self._segments = loaded.segments
        self.size = sum(segment.size for segment in loaded.segments)
        self._snapshots = loaded.snapshots
        self._producer_expiration_ms = producer_expiration_ms
        self._on_truncated = on_truncated
        self.truncations = 0
        self.cleaned_to = cleaned_to  # compaction has been here; None if never
        self._swap: tuple[Segment, list[Segment]] | None = None  # the new one, those it is made of
        self._unsynced = Unsynced(disk)
        self._recent = RecentPlaces()
        self._upto = (-1, 0, 0)  # the last bound asked for: offset, its segment's base, position
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
            log._cover_all()
        return log

    def _cover_all(self) -> None:
        """Nobody knows what the last run made durable: the next flush must do it all again."""
        self._unsynced.add_folder(self.path)
        self._unsynced.add_folder(self.path.rpartition("/")[0])
        for segment in self._segments[segment_at(self._segments, self.recovery_point) : -1]:
            self._cover_indexes(segment)
        for offset in self._snapshots.offsets:
            self.cover(self._snapshots.path(offset))
        self.cover(f"{self.path}/{names.PARTITION_METADATA}")

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._rules = AppendRules(config, _core.crc32c(self.path.encode()))

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    # Appending.

    def append_as_leader(
        self, data: Buffer, *, epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> Appended:
        """Checks, stamps and appends. `data` is changed in place where it can be written to."""
        if origin is not _CLIENT:
            return self._append_own(data, epoch=epoch, now_ms=now_ms, origin=origin)
        if self.health.is_low:
            raise self.health.refuse_clients()
        rules = self._rules
        batch = appends.check_produced(data, rules, self.tp, now_ms=now_ms, from_client=True)
        size = batch.size
        if size != len(data):  # type: ignore[arg-type]  # bytes of one kind or another
            data = appends.only_batch(data, size, self.tp)
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
            data = appends.recompress(data, batch, rules, self.tp)
            size = len(data)
        if size > rules.segment_bytes:
            raise appends.too_large_for_segment(size, rules, self.tp)
        last_offset = end + batch.last_offset_delta
        try:
            max_timestamp = appends.stamp(
                data, batch, rules, base_offset=end, epoch=epoch, now_ms=now_ms
            )
        except TypeError:  # a buffer that cannot be written to
            data = bytearray(data)
            max_timestamp = appends.stamp(
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
        batches = own_appends.whole_batches(data, self.tp)
        if not batches:
            return Appended(self.end, self.end - 1, NO_TIMESTAMP, self.start, False, 0)
        return self._append_stamped(data, batches, now_ms=now_ms)

    def _append_own(self, data: Buffer, *, epoch: int, now_ms: int, origin: Origin) -> Appended:
        if origin is Origin.RAFT:
            own_appends.check_raft(data, self._rules, self.tp, epoch)
            return self.append_as_follower(data, now_ms=now_ms)
        assert origin is Origin.COORDINATOR, f"{origin} does not lead"
        own = own_appends.stamp_coordinators(
            data,
            self._rules,
            self.tp,
            self.producers,
            base_offset=self.end,
            epoch=epoch,
            now_ms=now_ms,
        )
        appended = self.append_as_follower(own, now_ms=now_ms)
        if self._rules.log_append_time:
            return appended._replace(log_append_time=now_ms)
        return appended

    def _append_stamped(self, data: Buffer, batches: list[_core.Batch], *, now_ms: int) -> Appended:
        """Appends batches that have their offsets and epochs."""
        expected = self.end
        for batch in batches:
            if batch.base_offset < expected:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.tp}: a batch begins at {batch.base_offset}, the next offset is "
                    f"{expected}",
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
        segment = self._segments[-1]
        health = self.health
        if health.failure is not None:
            health.check()
        try:
            if segment.must_roll(self._rules, size, last_offset, max_timestamp, now_ms):
                # A segment begins where the one before ends, even if the next batch leaves a gap
                # (recovery takes a gap between segments for a loss), unless it could not hold it.
                fits = last_offset - self.end <= _RELATIVE_MAX
                segment = self._roll(self.end if fits else base_offset, now_ms)
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
            position, size, last_offset, max_timestamp, self._rules.index_interval_bytes
        )
        self._recent.add(base_offset, position)
        self.end = last_offset + 1
        self.size += size
        if epoch != self.epochs.latest and epoch >= 0:
            self.epochs.assign(epoch, base_offset)

    # Rolling.

    def roll(self, now_ms: int) -> None:
        """Begins a new segment at the end of the log."""
        with self.health.errors():
            self._roll(self.end, now_ms)

    def _roll(self, base: int, now_ms: int) -> Segment:
        active = self._segments[-1]
        if active.base == base:
            assert active.size == 0, f"segment {base} of {self.tp} is there already"
            return active
        # Were the new name kept by a crash and an older one lost, nobody could tell that the log
        # had begun earlier. After each roll a flush is due, so this seldom has to wait.
        self._unsynced.sync_folders()
        # Even if the disk refuses it: names that were made and taken away again must not come back.
        self._unsynced.add_folder(self.path)
        active.seal()
        segment = Segment.create(
            self._disk,
            self.path,
            base,
            now_ms=now_ms,
            preallocate_bytes=self._rules.preallocate_bytes,
        )
        if active.size:
            self._cover_indexes(active)
        else:  # its successor is too far away to be the same segment
            for path in self._segments.pop().rename(names.DELETED):
                self._disk.remove(path)
        self._segments.append(segment)
        self._recent.clear()
        self.producers.end = base
        self._take_snapshot()
        return segment

    def _take_snapshot(self) -> None:
        written = self._snapshots.save(self.producers)
        if written is not None:
            self.cover(written)

    def _cover_indexes(self, segment: Segment) -> None:
        kinds = names.SEGMENT_SUFFIXES[1:]
        self._unsynced.add_indexes(segment.base, (segment.path(kind) for kind in kinds))

    # Reading.

    def read(
        self, offset: int, *, bytes_max: int, upto: int, at_least_one: bool = True
    ) -> LogSlice:
        """Bytes from the batch that has `offset` on, up to `bytes_max` or, if the first batch
        alone is larger and `at_least_one` is set, that batch. Never a batch that begins at or
        after `upto`."""
        if offset < self.start or offset > self.end:
            raise self._out_of_range(offset)
        if offset >= upto:
            return LogSlice(None, 0, self._segments[-1].base, 0)
        try:
            segments = self._segments
            place = len(segments) - 1
            if offset < segments[-1].base:
                place = segment_at(segments, offset)
            first_bytes = 0
            while True:
                segment = segments[place]
                position = -1
                if place == len(segments) - 1:
                    position = self._recent.get(offset)
                if position < 0:
                    found = segment.locate(offset)
                    if found is not None:
                        position, first_bytes = found[0], found[1]
                        break
                    place += 1  # a gap that compaction left at the end of a segment
                    if place == len(segments):
                        return LogSlice(None, 0, segment.base, segment.size)
                    continue
                break
            available = self._bytes_below(upto, place) - position
            if available <= bytes_max:
                count = available
            else:
                count = bytes_max
                if not first_bytes:
                    first_bytes = segment.batch_size(position)
                if first_bytes > count:
                    count = min(first_bytes, available) if at_least_one else 0
            if count <= 0:
                return LogSlice(None, 0, segment.base, position)
            return LogSlice(FileSlice(segment.file, position, count), count, segment.base, position)
        except OSError as error:
            raise self.health.refusal(error) from error

    def _bytes_below(self, upto: int, place: int) -> int:
        """How many bytes of a segment belong to batches that begin below an offset."""
        segment = self._segments[place]
        if upto >= self.end:
            return segment.size
        if place + 1 < len(self._segments) and self._segments[place + 1].base <= upto:
            return segment.size
        known, base, position = self._upto
        if known == upto and base == segment.base:
            return position
        position = -1
        if place + 1 == len(self._segments):
            position = self._recent.get(upto)
        if position < 0:
            found = segment.locate(upto)
            position = found[0] if found else segment.size
        self._upto = (upto, segment.base, position)
        return position

    def offset_bound(self, read: LogSlice) -> int:
        """An offset at or above all that a slice may contain, found without reading it."""
        return search.offset_bound(
            self._segments, read.segment_base, read.position + read.size, log_end=self.end
        )

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [from, to)."""
        return search.aborted(self._segments, from_offset, to_offset)

    def offset_for_time(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is not below this one."""
        with self.health.errors():
            return search.first_not_before(self._segments, timestamp, log_start=self.start)

    def max_timestamp(self) -> TimestampedOffset | None:
        """The first record that has the largest timestamp of all."""
        with self.health.errors():
            return search.with_max_timestamp(self._segments)

    def earliest(self) -> TimestampedOffset:
        entry = self.epochs.earliest()
        epoch = entry[0] if entry is not None and entry[1] <= self.start else NO_EPOCH
        return TimestampedOffset(NO_TIMESTAMP, self.start, epoch)

    def latest(self) -> TimestampedOffset:
        return TimestampedOffset(NO_TIMESTAMP, self.end, self.epochs.latest)

    def _out_of_range(self, offset: int) -> ApiError:
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

    def delete_records_before(self, offset: int) -> None:
        """Moves the start of the log; segments below it go with the next `retire`."""
        if offset > self.end:
            raise self._out_of_range(offset)
        if offset <= self.start:
            return
        self.start = offset
        self.epochs.truncate_from_start(offset)
        self.producers.start_at(offset)

    def retire(self, now_ms: int, high_watermark: int) -> list[RetiredSegment]:
        """Takes the segments out of the log that retention says must go."""
        with self.health.errors():
            chosen = list(
                retention.expired(
                    self._segments,
                    self._config,
                    log_start=self.start,
                    log_end=self.end,
                    high_watermark=high_watermark,
                    now_ms=now_ms,
                )
            )
            if not chosen:
                return []
            self.abandon_swap()
            takes_all = len(chosen) == len(self._segments)
            if takes_all:
                self._roll(self.end, now_ms)
            # What stays must be durable first: a crash that kept the removals but lost the new
            # name would leave no segment to say where the log ends, and one that lost the
            # producers' snapshot would bring back sequences of long ago.
            if takes_all or self.recovery_point < self._segments[len(chosen)].base:
                self._flush_here()
            retired = [self._retire(segment, reason) for segment, reason in chosen]
            # What was never flushed must not come back below a recovery point that has passed it.
            self._unsynced.add_folder(self.path)
            del self._segments[: len(chosen)]
            self.size = sum(segment.size for segment in self._segments)
            self.delete_records_before(max(self.start, self._segments[0].base))
        return retired

    def _flush_here(self) -> None:
        """Waits for the device. Whoever can flushes before, in a worker, and little is left. On a
        full disk what cannot be written must not keep retention from making room."""
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

    def truncate_to(self, offset: int) -> list[RetiredSegment]:
        """Drops all from `offset` on. The segments that fall away whole are handed back."""
        if offset >= self.end:
            self.epochs.truncate_from_end(self.end)
            return []
        if offset < self._segments[0].base:
            return self.truncate_and_start_at(offset)
        with self.health.errors():
            self.abandon_swap()
            retired = []
            while self._segments[-1].base > offset:
                retired.append(self._retire(self._segments.pop(), Reason.TRUNCATION))
            self._segments[-1].truncate_to(offset)
            self._reset_ends(min(self.start, offset), offset)
            self.epochs.truncate_from_end(offset)
            self._reload_producers(offset)
            self._make_truncation_durable()
        return retired

    def truncate_and_start_at(
        self, offset: int, log_start: int | None = None
    ) -> list[RetiredSegment]:
        """Drops everything and begins anew at an offset."""
        with self.health.errors():
            self.abandon_swap()
            retired = []
            while self._segments:
                retired.append(self._retire(self._segments.pop(), Reason.TRUNCATION))
            created_ms = self.last_flush_ms
            self._segments.append(Segment.create(self._disk, self.path, offset, now_ms=created_ms))
            self._unsynced.add_folder(self.path)
            self._reset_ends(offset if log_start is None else log_start, offset)
            self.epochs.clear()
            self._snapshots.drop(lambda _: True)
            self.producers.clear(offset)
            self.producers.snapshot_offset = offset
            self._make_truncation_durable()
        return retired

    def _make_truncation_durable(self) -> None:
        """What was cut must not come back behind what is appended next, nor may a recovery point
        above the new end leave that unchecked. Truncation is rare enough to wait for it."""
        self._segments[-1].file.sync()
        self._unsynced.add_folder(self.path)
        self._unsynced.sync_folders()
        if self._on_truncated is not None:
            self._on_truncated()

    def _reset_ends(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.size = sum(segment.size for segment in self._segments)
        self.recovery_point = min(self.recovery_point, end)
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, end)
        self.truncations += 1
        self._recent.clear()
        self._upto = (-1, 0, 0)

    def _reload_producers(self, end: int) -> None:
        """The states as they were at a lower end."""
        self._snapshots.drop(lambda offset: offset > end)
        self._snapshots.restore(
            self.producers,
            self._segments,
            start=self.start,
            end=end,
            now_ms=self.last_flush_ms,
            expiration_ms=self._producer_expiration_ms,
        )

    # Compaction: a new segment takes the place of some that follow each other. It is made and
    # synced as `.cleaned`. After each of the three steps the folder is synced in a worker, so that
    # at every moment a start finds either all of the old (and drops what is new) or all of the new.

    def begin_swap(self, cleaned: Segment, bases: Sequence[int], *, truncations: int) -> bool:
        """`.cleaned` becomes `.swap`: from now on a start would finish the swap. False if the
        segments that it was made of are not there any more as they were."""
        place = segment_at(self._segments, bases[0])
        sources = self._segments[place : place + len(bases)]
        if (
            truncations != self.truncations
            or [segment.base for segment in sources] != list(bases)
            or sources[-1] is self._segments[-1]
        ):
            return False
        assert self._swap is None, f"{self.tp} has a swap under way"
        with self.health.errors():
            try:
                cleaned.resuffix(names.SWAP)
            except OSError:
                # As long as a file is `.cleaned`, a start takes none of the others for whole.
                for suffix in (names.SWAP, names.CLEANED):
                    cleaned.suffix = suffix
                    cleaned.remove()
                raise
        self._swap = cleaned, sources
        return True

    def commit_swap(self) -> list[RetiredSegment] | None:
        """Readers get the new segment, and the old leave, the oldest first: a deletion mark must
        not go before what it deletes. None if the swap was abandoned meanwhile."""
        if self._swap is None:
            return None
        cleaned, sources = self._swap
        self._swap = None
        place = segment_at(self._segments, cleaned.base)
        self._segments[place : place + len(sources)] = [cleaned]
        self.size = sum(segment.size for segment in self._segments)
        self._upto = (-1, 0, 0)
        with self.health.errors():
            return [
                retired
                for source in sources
                if (retired := self._replace(source, snapshot=source.base != cleaned.base))
            ]

    def _replace(self, source: Segment, *, snapshot: bool) -> RetiredSegment | None:
        try:
            return self._retire(source, Reason.COMPACTION, snapshot=snapshot)
        except OSError as error:
            if not is_full(error):
                raise
            # A new name may need room, and an old segment must not be there beside the new one.
            # Readers that have it keep what they have.
            source.remove_files()
            if snapshot:
                self._snapshots.drop(lambda offset: offset == source.base)
            return None

    def end_swap(self) -> None:
        """The new segment gets its name, once the old ones are gone for good."""
        with self.health.errors():
            for segment in self._segments:
                if segment.suffix:
                    segment.resuffix("")
                    self._unsynced.add_folder(self.path)

    def abandon_swap(self) -> None:
        """What is about to be cut must not come back with a swap that a start finishes."""
        if self._swap is not None:
            self._swap[0].remove()
            self._swap = None
            self._unsynced.add_folder(self.path)

    def _retire(self, segment: Segment, reason: Reason, *, snapshot: bool = True) -> RetiredSegment:
        paths = segment.rename(names.DELETED)
        if snapshot:
            paths += self._snapshots.rename(segment.base, names.DELETED)
        return RetiredSegment(
            self._disk, self.health, segment.base, segment.size, reason, tuple(paths)
        )

    # Durability.

    @property
    def trusted_end(self) -> int:
        """Up to where a start need not look: what is durable with its indexes. Those of the active
        segment are behind; it is looked at as a whole anyway."""
        active, first = self._segments[-1], self._unsynced.first_without_indexes
        end = min(self.recovery_point, active.base) if active.dirty else self.recovery_point
        return end if first is None else min(first, end)

    @property
    def unflushed_messages(self) -> int:
        return self.end - self.recovery_point

    def flush_job(self, upto: int | None = None) -> FlushJob | None:
        """What makes all below `upto` (the end of the log, if not given) durable, or None if it
        already is. Segments from `upto` on are left alone."""
        upto = self.end if upto is None else min(upto, self.end)
        if upto <= self.recovery_point and not self._unsynced:
            return None
        place = segment_at(self._segments, self.recovery_point)
        files = [s.file for s in self._segments[place:] if s.base < upto and s.size]
        epochs = self.epochs.take_unsaved(upto)
        paths, folders = self._unsynced.take()
        return FlushJob(
            disk=self._disk,
            health=self.health,
            upto=upto,
            truncations=self.truncations,
            files=tuple(files),
            paths=paths,
            epochs=None if epochs is None else (self._epochs_path, epochs),
            folders=folders,
            names=self.health.names,
            indexes=self._unsynced.take_indexes(),
        )

    def not_flushed(self, job: FlushJob) -> None:
        """The job has failed, as it does on a full disk: the next one has its work too."""
        self._unsynced.give_back(job)
        if job.epochs is not None:
            self.epochs.not_saved()

    def flushed(self, job: FlushJob, now_ms: int | None = None) -> None:
        """The job has run: what it covers need not be checked after a crash."""
        self._unsynced.done(job)
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, job.upto)
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def seal(self) -> None:
        """Writes indexes and producer states as they are now, for a start that trusts them. The
        next flush job makes them durable."""
        with self.health.errors():
            active = self._segments[-1]
            if active.dirty:
                self._cover_indexes(active)
                active.seal()
            self._take_snapshot()

    def close(self, clean: bool) -> None:
        """Ends the use of the log. A clean close leaves on disk all that the next start needs; to
        be durable it must have been sealed and flushed before."""
        if clean and self.health.is_online:
            self.seal()
            epochs = self.epochs.take_unsaved(self.end)
            if epochs is not None:
                with self.health.errors():
                    self._disk.write_atomically(self._epochs_path, epochs)
        for segment in self._segments:
            segment.close()

    def cover(self, path: str) -> None:
        """Lets the next flush job make this file durable too."""
        self._unsynced.add_file(path)

    def move_to(self, path: str) -> None:
        """Renames the directory of the log."""
        self._disk.rename(self.path, path)
        self.health.names += 1
        self._unsynced.move(self.path, path)
        self.path = path
        self._snapshots.folder = path
        for segment in self._segments:
            segment.move_to(path)
        if self._swap is not None:
            self._swap[0].move_to(path)

    def expire_producers(self, now_ms: int) -> None:
        """Forgets producers that have been silent for longer than they are remembered."""
        if len(self.producers):
            self.producers.expire(now_ms, self._producer_expiration_ms)

    @property
    def _epochs_path(self) -> str:
        return f"{self.path}/{names.LEADER_EPOCHS}"


def _gaps_to(cleaned_to: int | None, recovery_point: int | None) -> int:
    """Up to where compaction may have left gaps between segments. It only touches what is flushed,
    and says so in the checkpoints before; one that cannot be read leaves us without a bound."""
    if cleaned_to is None:
        return 0
    return _OFFSET_MAX if recovery_point is None else max(cleaned_to, recovery_point)
