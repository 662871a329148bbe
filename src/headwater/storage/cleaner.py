"""Compaction: which logs are worth it, and one round over one log.

Kafka's rules: never the active segment, nothing at or above the last stable offset, nothing younger
than `min.compaction.lag.ms`; worth it when the dirty part is larger than
`min.cleanable.dirty.ratio` of the whole, or is older than `max.compaction.lag.ms`.

A job is made on the loop, which owns the log. `learn` and `clean` run in a worker: they read
segments that are no longer written to, through files of their own, and write new files. The log
stays in use meanwhile; if it is truncated, moved or deleted, the work is discarded. The loop puts
the new segments in place, with `Log.begin_swap`, `commit_swap` and `end_swap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater import _core
from headwater.io import Disk
from headwater.storage import names
from headwater.storage.failures import Health
from headwater.storage.log import Log
from headwater.storage.offset_index import OffsetIndex
from headwater.storage.segment import HEADER_BYTES, Segment, whole_size
from headwater.storage.txn_index import AbortedTransaction, TransactionIndex

_FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Dirty:
    """The part of a log that compaction could work on now."""

    log: Log
    first_dirty: int
    upper_bound: int  # the base of the first segment that must be left alone
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_worth_it(self) -> bool:
        if self.is_overdue and self.dirty_bytes:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def find_dirty(log: Log, *, last_stable_offset: int, now_ms: int) -> Dirty:
    """Measures the dirty part of a log. Reads no file, unless the log has compaction lags."""
    segments, config = log.segments, log.config
    first_dirty = log.cleaned_to
    if first_dirty is None or not log.start <= first_dirty <= log.end:
        # Never compacted, or overtaken by retention, or ahead of a log whose end was lost.
        first_dirty = log.start
    closed = segments.since(first_dirty)[:-1]
    bound = min(last_stable_offset, segments.active.base)
    if config.min_compaction_lag_ms > 0:
        newest = now_ms - config.min_compaction_lag_ms
        for segment in closed:
            if segment.max_timestamp > newest:
                bound = min(bound, segment.base)
                break
    upper_bound = segments[segments.at(max(first_dirty, bound))].base
    return Dirty(
        log,
        first_dirty,
        upper_bound,
        clean_bytes=sum(segment.size for segment in segments if segment.base < first_dirty),
        dirty_bytes=sum(segment.size for segment in closed if segment.base < upper_bound),
        is_overdue=_is_overdue(closed, config.max_compaction_lag_ms, now_ms),
    )


def dirtiest(found: Iterable[Dirty]) -> Dirty | None:
    """Returns the log to compact next, if any is worth it."""
    return max(
        (dirty for dirty in found if dirty.is_worth_it),
        key=lambda dirty: dirty.ratio,
        default=None,
    )


def _is_overdue(closed: Sequence[Segment], lag_ms: int, now_ms: int) -> bool:
    if lag_ms == _FOREVER_MS:
        return False
    times = (segment.first_timestamp for segment in closed)
    return any(time is not None and 0 < time < now_ms - lag_ms for time in times)


_RELATIVE_MAX = 2**31 - 1
_POSITION_MAX = 2**31 - 1
# Each one costs the loop some renames when it is swapped out.
_GROUP_SEGMENTS_MAX = 50


class CleaningAborted(Exception):
    """The log has changed since the job was made; the work is discarded."""


class Uncleanable(Exception):
    """The log cannot be compacted, and another attempt would not help."""


@dataclass(frozen=True, slots=True)
class CleaningLimits:
    """The node's settings for one cleaner."""

    memory_bytes: int
    load_factor: float
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment, as it was when the job was made."""

    base: int
    end: int  # the base of the next one
    size: int
    folder: str

    def path(self, kind: str) -> str:
        return f"{self.folder}/{names.offset_name(self.base, kind)}"


class CleaningJob:
    """One round over one log: call `learn` once, then `clean` for each of `groups`, in order."""

    def __init__(self, disk: Disk, dirty: Dirty, *, limits: CleaningLimits, now_ms: int) -> None:
        log = dirty.log
        config = log.config
        self._disk = disk
        self._health: Health = log.health
        self._limits = limits
        self._now_ms = now_ms
        self._folder = log.path
        self._segment_bytes_max = config.segment_bytes
        self._index_bytes_max = config.segment_index_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self.dirty = dirty
        self.truncations = log.truncations
        self._is_cancelled = False
        segments = log.segments
        self._sources = [
            Source(segment.base, after.base, segment.size, log.path)
            for segment, after in pairwise(segments)
            if segment.base < dirty.upper_bound
        ]
        # A transaction may end far behind its data, in segments that the loop still writes to.
        self._aborted = [
            entry
            for segment in segments
            if segment.base >= dirty.upper_bound
            for entry in segment.txn_index.entries()
        ]
        self._retainer = _core.Retainer(
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            upper_bound=dirty.upper_bound,
            producers=[
                (entry.producer_id, entry.last_offset, entry.epoch) for entry in log.producers
            ],
        )
        self._transactions = _core.Transactions([])
        self._keys: _core.KeyMap | None = None
        self.groups: list[tuple[Source, ...]] = []
        self.end = dirty.first_dirty  # how far the log is compacted once all groups are
        self.bytes_read = 0
        self.bytes_written = 0

    @property
    def records_read(self) -> int:
        return self._retainer.records_read

    @property
    def records_kept(self) -> int:
        return self._retainer.records_kept

    @property
    def keyless(self) -> int:
        return self._retainer.keyless

    @property
    def is_current(self) -> bool:
        """Whether the log has been neither truncated nor moved. For the loop only."""
        log = self.dirty.log
        return log.truncations == self.truncations and log.path == self._folder

    def cancel(self) -> None:
        """Asks the worker to stop, which it does between two chunks."""
        self._is_cancelled = True

    # In a worker.

    def learn(self) -> None:
        """Finds the last offset of each key in the dirty part, or in as much of it as memory
        allows, and decides which segments become one."""
        with self._guard():
            for source in self._sources:
                index = TransactionIndex(self._disk, source.path(names.TXN_INDEX))
                self._aborted += index.entries()
            self._learn()
            sources = [source for source in self._sources if source.base < self.end]
            self.groups = list(self._grouped(sources))
            self._transactions = _core.Transactions(self._aborted)

    def _learn(self) -> None:
        first_dirty = self.dirty.first_dirty
        keys = _core.KeyMap(self._limits.memory_bytes, load_factor=self._limits.load_factor)
        transactions = _core.Transactions(
            [entry for entry in self._aborted if entry.last_offset >= first_dirty]
        )
        for source in self._sources:
            if source.end <= first_dirty:
                continue
            position = 0
            if source.base < first_dirty:
                index = OffsetIndex(self._disk, source.path(names.INDEX), source.base)
                position = index.lookup(first_dirty)
            is_full = False
            for chunk, reader in self._chunks(source, position):
                used, is_full = keys.learn(chunk, transactions, first_dirty)
                reader.advance(used, stop=is_full)
            if is_full:
                break
            keys.reach(source.end - 1)
        if keys.latest_offset < first_dirty:
            raise Uncleanable(
                f"the batch at offset {first_dirty} has more keys than the {keys.keys_max} that "
                "log.cleaner.dedupe.buffer.size has room for"
            )
        self._keys = keys
        self.end = keys.latest_offset + 1

    def _grouped(self, sources: Sequence[Source]) -> Iterator[tuple[Source, ...]]:
        """Groups segments that become one: within the size of a segment and of its indexes, and
        with offsets that are within reach of the first."""
        group: list[Source] = []
        size = index_size = time_index_size = 0
        for source in sources:
            own_index = self._disk.size(source.path(names.INDEX))
            own_time_index = self._disk.size(source.path(names.TIME_INDEX))
            fits = (
                (
                    len(group) < _GROUP_SEGMENTS_MAX
                    and size + source.size <= self._segment_bytes_max
                    and index_size + own_index <= self._index_bytes_max
                    and time_index_size + own_time_index <= self._index_bytes_max
                    and (not source.size or source.end - 1 - group[0].base <= _RELATIVE_MAX)
                )
                if group
                else True
            )
            if not fits:
                yield tuple(group)
                group = []
                size = index_size = time_index_size = 0
            group.append(source)
            size += source.size
            index_size += own_index
            time_index_size += own_time_index
        if group:
            yield tuple(group)

    def clean(self, group: Sequence[Source]) -> Segment:
        """Writes what is kept of these segments to a new one, durably, as `.cleaned`."""
        with self._guard():
            segment = Segment.create(
                self._disk, self._folder, group[0].base, now_ms=self._now_ms, suffix=names.CLEANED
            )
            try:
                self._clean_into(segment, group)
                segment.seal()
                segment.sync()
                self._disk.sync_dir(self._folder)
            except BaseException:
                segment.remove()
                raise
            return segment

    def _clean_into(self, segment: Segment, group: Sequence[Source]) -> None:
        assert self._keys is not None, "keys come first"
        retainer, size = self._retainer, 0
        retainer.begin(segment.base, self._index_interval_bytes)
        for source in group:
            for chunk, reader in self._chunks(source, 0):
                used, kept, points = retainer.retain(chunk, self._keys, self._transactions)
                reader.advance(used)
                if kept:
                    segment.file.append(kept)
                    size += len(kept)
                if size > _POSITION_MAX:
                    raise Uncleanable(f"segment {segment.base} would grow past 2 GiB")
                for position, last_offset, timestamp, timestamp_offset in points:
                    segment.index.append(last_offset, position)
                    segment.time_index.append(timestamp, timestamp_offset)
            for entry in self._transactions.take_needed():
                segment.txn_index.append(AbortedTransaction(*entry))
            self.bytes_read += source.size
        self.bytes_written += size
        segment.filled(
            size,
            max_timestamp=retainer.max_timestamp,
            offset_of_max_timestamp=retainer.offset_of_max_timestamp,
        )

    def sync_names(self) -> None:
        """Makes the names durable, after each step of a swap."""
        with self._guard():
            self._disk.sync_dir(self._folder)

    def _chunks(self, source: Source, position: int) -> Iterator[tuple[bytes, _Reader]]:
        """Yields chunks of a segment with at least one batch each; the caller says how much of a
        chunk it has used."""
        reader = _Reader(position, self._limits.chunk_bytes)
        file = self._disk.open(source.path(names.LOG))
        try:
            while reader.position < source.size:
                if self._is_cancelled:
                    raise CleaningAborted
                count = min(reader.count, source.size - reader.position)
                chunk = file.pread(count, reader.position)
                if len(chunk) < count:
                    raise CleaningAborted  # truncated meanwhile
                before = reader.position
                yield chunk, reader
                if reader.is_done:
                    return
                reader.count = self._limits.chunk_bytes
                if reader.position == before:
                    reader.count = whole_size(chunk, 0)
                    if reader.count <= len(chunk) or before + reader.count > source.size:
                        raise Uncleanable(
                            f"segment {source.base} has half a batch at byte {before}"
                        )
        finally:
            file.close()

    def _guard(self) -> _Guard:
        return _Guard(self._health)


class _Reader:
    """The position up to which a segment has been read."""

    __slots__ = ("count", "is_done", "position")

    def __init__(self, position: int, count: int) -> None:
        self.position = position
        self.count = max(count, HEADER_BYTES)
        self.is_done = False

    def advance(self, used: int, *, stop: bool = False) -> None:
        self.position += used
        self.is_done = stop


class _Guard:
    """Translates failures in a worker."""

    __slots__ = ("_health",)

    def __init__(self, health: Health) -> None:
        self._health = health

    def __enter__(self) -> None:
        self._health.check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise CleaningAborted from error  # deleted meanwhile, by retention or with the log
        if isinstance(error, OSError):
            raise self._health.refusal(error) from error
        if isinstance(error, _core.CorruptBatch):
            raise Uncleanable(f"a batch is corrupt: {error}") from error
