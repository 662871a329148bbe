"""The segments of one log: the list, its size, and searches in it.

A fetch gets a slice of one segment's file, found without reading its records: by the index or, at
the end of the log, by the remembered positions of the last batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, overload

from headwater import _core
from headwater.io import FileSlice
from headwater.storage.segment import Segment, segment_at
from headwater.storage.txn_index import AbortedTransaction

_POSITIONS_MAX = 256  # in each of two generations


class LogSlice(NamedTuple):
    """Bytes of a segment file for a reader. They begin with the batch that has the requested offset
    and may end within a batch."""

    slice: FileSlice | None
    size: int
    segment_base: int
    position: int


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int  # -1 if not known


class Segments:
    """A list of segments that is never empty. Appends go to the last one, `active`."""

    __slots__ = ("_all", "_last_bound", "_newer", "_older", "active", "size")

    def __init__(self, found: list[Segment]) -> None:
        self._all = found
        self.active = found[-1]
        self.size = sum(segment.size for segment in found)
        # Where the last batches of the active segment are, by base offset. The older half is
        # forgotten at a time, which is cheaper than one by one.
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}
        self._last_bound = (-1, 0, 0)  # of the last read: offset, base of its segment, position

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> list[Segment]: ...

    def __getitem__(self, place: int | slice) -> Segment | list[Segment]:
        return self._all[place]

    def at(self, offset: int) -> int:
        """Returns the index of the segment that has an offset, or would have it."""
        return segment_at(self._all, offset)

    def since(self, offset: int) -> list[Segment]:
        """Returns the segment that has an offset, and those after it."""
        return self._all[self.at(offset) :]

    # Changes.

    def add_batch(
        self, size: int, base_offset: int, last_offset: int, max_timestamp: int, interval_bytes: int
    ) -> None:
        """Takes note of a batch that was written at the end of the active segment."""
        segment = self.active
        position = segment.size
        segment.appended(position, size, last_offset, max_timestamp, interval_bytes)
        if len(self._newer) >= _POSITIONS_MAX:
            self._older = self._newer
            self._newer = {}
        self._newer[base_offset] = position
        self.size += size

    def add_batches(self, batches: Sequence[_core.Batch], interval_bytes: int) -> None:
        """The same for batches that were written together."""
        segment = self.active
        first, last = batches[0], batches[-1]
        start = segment.size - first.position
        segment.found(start, batches, interval_bytes)
        recent = batches[-_POSITIONS_MAX:]  # the index finds the others
        if len(self._newer) + len(recent) > _POSITIONS_MAX:
            self._older = self._newer
            self._newer = {}
        for batch in recent:
            self._newer[batch.base_offset] = start + batch.position
        self.size += last.position + last.size - first.position

    def add(self, segment: Segment) -> None:
        """Makes a segment the active one."""
        self._all.append(segment)
        self._changed()

    def pop(self) -> Segment:
        """Removes and returns the active segment. The one before it takes its place; if there is
        none, the caller adds another."""
        segment = self._all.pop()
        if self._all:
            self._changed()
        return segment

    def truncate_active(self, offset: int) -> None:
        self.active.truncate_to(offset)
        self._changed()

    def remove_first(self, count: int) -> None:
        assert count < len(self._all), f"{count} of {len(self._all)} segments cannot go"
        del self._all[:count]
        self.size = sum(segment.size for segment in self._all)

    def replace(self, sources: list[Segment], cleaned: Segment) -> None:
        """Puts a compacted segment in the place of those that it was made of."""
        place = self.at(cleaned.base)
        assert self._all[place : place + len(sources)] == sources
        assert sources[-1] is not self.active, "the active segment cannot be replaced"
        self._all[place : place + len(sources)] = [cleaned]
        self.size = sum(segment.size for segment in self._all)
        self._last_bound = (-1, 0, 0)

    def _changed(self) -> None:
        self.active = self._all[-1]
        self.size = sum(segment.size for segment in self._all)
        self._newer = {}
        self._older = {}
        self._last_bound = (-1, 0, 0)

    # Reading.

    def read(
        self, offset: int, bytes_max: int, upto: int, log_end: int, at_least_one: bool
    ) -> LogSlice:
        """Returns the bytes from the batch that has `offset` on; see `Log.read`."""
        segments = self._all
        segment = self.active
        place = len(segments) - 1
        if offset < segment.base:
            place = segment_at(segments, offset)
            segment = segments[place]
        position, first_bytes = -1, 0
        if segment is self.active:
            position = self._position(offset)
        while position < 0:
            found = segment.locate(offset)
            if found is not None:
                position, first_bytes = found[0], found[1]
                break
            place += 1  # a gap that compaction left at the end of a segment
            if place == len(segments):
                return LogSlice(None, 0, segment.base, segment.size)
            segment = segments[place]
        available = self._bytes_below(upto, place, log_end) - position
        count = available
        if available > bytes_max:
            count = bytes_max
            if not first_bytes:
                first_bytes = segment.batch_size(position)
            if first_bytes > count:
                count = min(first_bytes, available) if at_least_one else 0
        if count <= 0:
            return LogSlice(None, 0, segment.base, position)
        return LogSlice(FileSlice(segment.file, position, count), count, segment.base, position)

    def last_batches(self, size: int) -> Iterator[_core.Batch]:
        """Yields the batches in about the last `size` bytes, in their order."""
        place = len(self._all) - 1
        while place > 0 and self._all[place].size < size:
            size -= self._all[place].size
            place -= 1
        first, begin = self._all[place], 0
        if first.size > size:
            offset = first.index.first_offset_from(first.size - size)
            begin = first.size if offset is None else first.index.lookup(offset)
        for segment in self._all[place:]:
            for _, batch, _ in segment.scan(begin, check_crc=False):
                yield batch
            begin = 0

    def _position(self, offset: int) -> int:
        """Returns the position of a recent batch that begins at an offset, -1 if not known."""
        position = self._newer.get(offset, -1)
        return position if position >= 0 else self._older.get(offset, -1)

    def _bytes_below(self, upto: int, place: int, log_end: int) -> int:
        """Returns how many bytes of a segment belong to batches that begin below an offset."""
        segment = self._all[place]
        if upto >= log_end:
            return segment.size
        is_active = segment is self.active
        if not is_active and self._all[place + 1].base <= upto:
            return segment.size
        known, base, position = self._last_bound
        if known == upto and base == segment.base:
            return position
        position = self._position(upto) if is_active else -1
        if position < 0:
            found = segment.locate(upto)
            position = found[0] if found else segment.size
        self._last_bound = (upto, segment.base, position)
        return position

    # Searching.

    def offset_bound(self, read: LogSlice, log_end: int) -> int:
        """Returns an offset at or above all that a slice may contain, from the index alone."""
        place = self.at(read.segment_base)
        bound = self._all[place].index.first_offset_from(read.position + read.size)
        if bound is not None:
            return bound
        return self._all[place + 1].base if place + 1 < len(self._all) else log_end

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that overlap [from, to)."""
        found: list[AbortedTransaction] = []
        for segment in self.since(from_offset):
            entries, complete = segment.txn_index.collect(from_offset, to_offset)
            found += entries
            if complete:
                break
        return found

    def first_not_before(self, timestamp: int, *, log_start: int) -> TimestampedOffset | None:
        """Returns the first record at or after the log's start whose timestamp is not below this
        one."""
        for segment in self.since(log_start):
            if segment.retention_timestamp < timestamp:
                continue
            from_offset = max(segment.time_index.lookup(timestamp), log_start)
            for position, size, _, _, newest in segment.headers(segment.index.lookup(from_offset)):
                if newest < timestamp:
                    continue
                data = segment.file.pread(size, position)
                for record in _core.decode(data, check_crc=False):
                    if record.timestamp >= timestamp and record.offset >= log_start:
                        return TimestampedOffset(record.timestamp, record.offset, _epoch_in(data))
        return None

    def with_max_timestamp(self) -> TimestampedOffset | None:
        """Returns the first record that has the largest timestamp."""
        segment = max(self._all, key=attrgetter("max_timestamp"))
        largest = segment.max_timestamp
        if largest < 0:
            return None
        begin = segment.index.lookup(segment.offset_of_max_timestamp)
        for position, size, _, _, newest in segment.headers(begin):
            if newest == largest:
                data = segment.file.pread(size, position)
                for record in _core.decode(data, check_crc=False):
                    if record.timestamp == largest:
                        return TimestampedOffset(largest, record.offset, _epoch_in(data))
        return None


def _epoch_in(data: bytes) -> int:
    return int.from_bytes(data[12:16], "big", signed=True)
