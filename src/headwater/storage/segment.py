"""One file of batches with its indexes: the unit in which a log grows, is searched and is deleted.

Nothing is opened or read before it is needed: a thousand idle partitions cost a thousand of these
objects and no descriptor.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING

from headwater import _core
from headwater.io import Disk, File
from headwater.model import NO_TIMESTAMP
from headwater.storage import names
from headwater.storage.offset_index import OffsetIndex
from headwater.storage.time_index import TimeIndex
from headwater.storage.txn_index import TransactionIndex

if TYPE_CHECKING:
    from headwater.storage.validation import AppendRules

# Base offset, length, last offset delta, max timestamp: the fields that a search needs.
_HEADER_FIELDS = Struct(">qi11xi8xq")
_LENGTH = Struct(">8xi")
_LENGTH_OVERHEAD = 12  # base offset and the length itself are not in the length
HEADER_BYTES = 61
# One index interval and the header after it, so that a search mostly takes one read.
_SEARCH_BYTES = 4096 + HEADER_BYTES
_RELATIVE_MAX = 2**31 - 1
_SCAN_BYTES = 4 * 1024 * 1024
_by_base = attrgetter("base")


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """Returns the index of the segment that has an offset, or would have it."""
    return max(0, bisect_right(segments, offset, key=_by_base) - 1)


class Segment:
    __slots__ = (
        "_disk",
        "_file",
        "_first_timestamp",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "base",
        "bytes_since_index",
        "created_ms",
        "dirty",
        "folder",
        "index",
        "size",
        "suffix",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, disk: Disk, folder: str, base: int, *, size: int, created_ms: int, suffix: str = ""
    ) -> None:
        self._disk = disk
        self.folder = folder
        self.base = base
        self.suffix = suffix  # of all its files, while it is being swapped in
        self.size = size
        self.created_ms = created_ms
        self.bytes_since_index = 0
        self.dirty = False  # whether the index files are behind
        self._file: File | None = None
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = base
        self.index = OffsetIndex(disk, self.path(names.INDEX), base)
        self.time_index = TimeIndex(disk, self.path(names.TIME_INDEX), base)
        self.txn_index = TransactionIndex(disk, self.path(names.TXN_INDEX))

    @classmethod
    def create(
        cls,
        disk: Disk,
        folder: str,
        base: int,
        *,
        now_ms: int,
        preallocate_bytes: int = 0,
        suffix: str = "",
    ) -> Segment:
        """Creates the files of an empty segment, and replaces any that exist."""
        segment = cls(disk, folder, base, size=0, created_ms=now_ms, suffix=suffix)
        for suffix in names.SEGMENT_SUFFIXES:
            if disk.exists(segment.path(suffix)):
                disk.remove(segment.path(suffix))
        segment._max_timestamp = NO_TIMESTAMP
        try:
            segment._file = disk.open(
                segment.path(names.LOG), create=True, preallocate_bytes=preallocate_bytes
            )
            for suffix in (names.INDEX, names.TIME_INDEX):
                disk.open(segment.path(suffix), create=True).close()
            if not preallocate_bytes:
                segment.release()
        except OSError:
            for suffix in names.SEGMENT_SUFFIXES:  # a start would find a half-made segment
                with contextlib.suppress(OSError):
                    disk.remove(segment.path(suffix))
            raise
        return segment

    @classmethod
    def find(cls, disk: Disk, folder: str, base: int, *, suffix: str = "") -> Segment:
        """Returns an existing segment."""
        path = f"{folder}/{names.offset_name(base, names.LOG)}{suffix}"
        size, created_ms = disk.size(path), disk.modified_ms(path)
        return cls(disk, folder, base, size=size, created_ms=created_ms, suffix=suffix)

    def path(self, suffix: str) -> str:
        return f"{self.folder}/{names.offset_name(self.base, suffix)}{self.suffix}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path(names.LOG))
        return self._file

    # Timestamps, read from the files only when needed.

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch that has the largest timestamp."""
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base

    @property
    def retention_timestamp(self) -> int:
        """The largest timestamp of a record; if none has one, when the file last changed."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._disk.modified_ms(self.path(names.LOG))

    @property
    def first_timestamp(self) -> int | None:
        """The timestamp of the first batch, from which `segment.ms` counts."""
        if self._first_timestamp is None and self.size:
            for _, _, _, _, timestamp in self.headers(0):
                self._first_timestamp = timestamp
                break
        return self._first_timestamp

    # Writing.

    def must_roll(
        self, rules: AppendRules, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Returns whether a batch of this size, up to this offset and time, needs a new segment."""
        if self.size + size > rules.segment_bytes or last_offset - self.base > _RELATIVE_MAX:
            return True
        if not self.size:
            return False
        first = self.first_timestamp
        if first is not None and first >= 0:
            if max_timestamp - first > rules.segment_ms:
                return True
        elif now_ms - self.created_ms > rules.segment_ms:
            return True
        # There is at most one entry for a batch, so most segments cannot have a full index.
        if self.size // HEADER_BYTES < rules.index_entries_max:
            return False
        return (
            len(self.index) >= rules.index_entries_max
            or len(self.time_index) >= rules.time_entries_max
        )

    def get_ready(self) -> None:
        """Reads what appends need. Once a batch is in the file nothing may fail any more: the next
        one would be written behind a batch that is not accounted for."""
        self.index.load()
        self.time_index.load()
        if self._max_timestamp is None:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last()

    def appended(
        self, position: int, size: int, last_offset: int, max_timestamp: int, interval_bytes: int
    ) -> None:
        """Takes note of a batch that was written at `position`."""
        if position == 0:
            self._first_timestamp = max_timestamp
        known = self._max_timestamp
        if known is None:
            known = self.max_timestamp
        if max_timestamp > known:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self.bytes_since_index > interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
            self.bytes_since_index = 0
        self.bytes_since_index += size
        self.size = position + size
        self.dirty = True

    def found(self, start: int, batches: Sequence[_core.Batch], interval_bytes: int) -> None:
        """Takes note of batches that are already in the file: `appended` for many, as there may be
        millions."""
        newest, newest_offset = self.max_timestamp, self.offset_of_max_timestamp
        since, first = self.bytes_since_index, batches[0]
        if start + first.position == 0:
            self._first_timestamp = first.max_timestamp
        for batch in batches:
            timestamp = batch.max_timestamp
            if timestamp > newest:
                newest, newest_offset = timestamp, batch.last_offset
            if since > interval_bytes:
                self.index.append(batch.last_offset, start + batch.position)
                self.time_index.append(newest, newest_offset)
                since = 0
            since += batch.size
        self.bytes_since_index = since
        self._max_timestamp, self._offset_of_max_timestamp = newest, newest_offset
        self.size = start + batches[-1].position + batches[-1].size
        self.dirty = True

    def recovered(self, size: int) -> None:
        """Sets how much of the file is good, after a scan."""
        self.size = size
        self.dirty = True

    def filled(self, size: int, *, max_timestamp: int, offset_of_max_timestamp: int) -> None:
        """Sets the size and timestamps of a segment that was written as a whole, index entries
        included."""
        self.size = size
        self._max_timestamp = max_timestamp
        self._offset_of_max_timestamp = offset_of_max_timestamp
        self.dirty = True

    def seal(self) -> None:
        """Writes the indexes, the last timestamp among them. Further appends stay possible."""
        if not self.dirty:
            return
        if self.size:
            self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
        self.index.save()
        self.time_index.save()
        self.txn_index.save()
        if self._file is not None:
            self._file.truncate(self.size)  # gives back what was preallocated
        self.index.unload()
        self.time_index.unload()
        self.dirty = False

    def truncate_to(self, offset: int) -> None:
        """Drops the batch that has this offset and all after it."""
        found = self.locate(offset)
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        if found is not None:
            self.cut_at(found[0])
        self.bytes_since_index = 0
        timestamp, last_offset = self.time_index.last()
        for _, _, _, last, batch_timestamp in self.headers(self.index.lookup(last_offset)):
            if batch_timestamp > timestamp:
                timestamp, last_offset = batch_timestamp, last
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, last_offset

    def cut_at(self, position: int) -> None:
        self.file.truncate(position)
        self.size = position
        self.dirty = True
        if not position:
            self._first_timestamp = None

    def start_reindexing(self) -> None:
        """Empties everything that is derived from the batches."""
        self.index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self.bytes_since_index = 0
        self._first_timestamp = None
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base

    def rename(self, suffix: str) -> list[str]:
        """Appends a suffix to the names of all files; returns their new paths."""
        renamed = []
        for kind in names.SEGMENT_SUFFIXES:
            path = self.path(kind)
            if self._disk.exists(path):
                self._disk.rename(path, path + suffix)
                renamed.append(path + suffix)
        return renamed

    def resuffix(self, suffix: str) -> None:
        """Replaces the suffix of all files."""
        old = [self.path(kind) for kind in names.SEGMENT_SUFFIXES]
        self.suffix = suffix
        for kind, path in zip(names.SEGMENT_SUFFIXES, old, strict=True):
            if self._disk.exists(path):
                self._disk.rename(path, self.path(kind))
        self.move_to(self.folder)

    def remove(self, *other_suffixes: str) -> None:
        """Removes all files, then those with other suffixes that a failed `resuffix` has left.
        Readers keep what they have."""
        self.close()
        for suffix in (self.suffix, *other_suffixes):
            for kind in names.SEGMENT_SUFFIXES:
                path = f"{self.folder}/{names.offset_name(self.base, kind)}{suffix}"
                for file in (path, path + names.DELETED):
                    with contextlib.suppress(FileNotFoundError):
                        self._disk.remove(file)

    def sync(self) -> None:
        """Makes all files durable, but not their names. Blocks on the device."""
        self.file.sync()
        for kind in names.SEGMENT_SUFFIXES[1:]:
            if self._disk.exists(self.path(kind)):
                file = self._disk.open(self.path(kind))
                try:
                    file.sync()
                finally:
                    file.close()

    def move_to(self, folder: str) -> None:
        """Follows the directory of the log to its new name."""
        self.folder = folder
        self.index.move_to(self.path(names.INDEX))
        self.time_index.move_to(self.path(names.TIME_INDEX))
        self.txn_index.move_to(self.path(names.TXN_INDEX))

    def release(self) -> None:
        """Closes the file until it is needed again. Not for a preallocated file: only its handle
        knows how much of it is used."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.release()
        self.index.unload()
        self.time_index.unload()

    # Searching.

    def headers(self, position: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yields (position, size, base offset, last offset, max timestamp) of every batch from here
        on. Reads headers only."""
        file, end = self.file, self.size
        chunk, chunk_start = b"", position
        while position + HEADER_BYTES <= end:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk = file.pread(min(_SEARCH_BYTES, end - position), position)
                chunk_start, at = position, 0
                if len(chunk) < HEADER_BYTES:
                    return
            base, length, delta, timestamp = _HEADER_FIELDS.unpack_from(chunk, at)
            size = length + _LENGTH_OVERHEAD
            if size < HEADER_BYTES or position + size > end:
                return
            yield position, size, base, base + delta, timestamp
            position += size

    def locate(self, offset: int) -> tuple[int, int, int] | None:
        """Returns (position, size, base offset) of the first batch that ends at or after
        `offset`."""
        for position, size, base, last, _ in self.headers(self.index.lookup(offset)):
            if last >= offset:
                return position, size, base
        return None

    def batch_size(self, position: int) -> int:
        return whole_size(self.file.pread(HEADER_BYTES, position), 0)

    def next_offset(self) -> int:
        """Returns the offset after the last batch, which must be known to be good."""
        end = self.base
        for _, _, _, last, _ in self.headers(self.index.last_position()):
            end = last + 1
        self.close()  # an idle log has no open file
        return end

    def scan(self, position: int = 0, end: int | None = None, *, check_crc: bool) -> Scan:
        return Scan(self.file, position, self.size if end is None else end, check_crc=check_crc)


class Scan:
    """Iterates over the batches in a range of a segment's file, reading large chunks. At the end,
    `position` says how far good batches reach, and `reason` why they end there, if it is before the
    end."""

    __slots__ = ("_check_crc", "_end", "_file", "position", "reason")

    def __init__(self, file: File, position: int, end: int, *, check_crc: bool) -> None:
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self.position = position
        self.reason: str | None = None

    def __iter__(self) -> Iterator[tuple[int, _core.Batch, bytes]]:
        """Yields (position in the file, header, the chunk that has the batch at
        `batch.position`)."""
        for start, batches, chunk in self.chunks():
            for batch in batches:
                yield start + batch.position, batch, chunk

    def chunks(self) -> Iterator[tuple[int, list[_core.Batch], bytes]]:
        """Yields (position of the chunk in the file, the whole batches in it, its bytes)."""
        file, end = self._file, self._end
        chunk_bytes = _SCAN_BYTES
        while self.position < end:
            start = self.position
            chunk = file.pread(min(chunk_bytes, end - start), start)
            if not chunk:  # the file has been cut meanwhile
                self.reason = "truncated"
                return
            batches, reached, reason = _core.scan(chunk, check_crc=self._check_crc)
            if batches:
                yield start, batches, chunk
            self.position = start + reached
            chunk_bytes = _SCAN_BYTES
            if reason is None:
                continue
            size = whole_size(chunk, reached)
            if reason != "truncated" or self.position + size > end:
                self.reason = reason
                return
            chunk_bytes = max(size, _SCAN_BYTES)  # a batch that does not fit the chunk


def whole_size(chunk: bytes | memoryview, position: int) -> int:
    """Returns the size that a batch header claims, or the size of a header if it is incomplete."""
    if len(chunk) - position < HEADER_BYTES:
        return HEADER_BYTES
    return int(_LENGTH.unpack_from(chunk, position)[0]) + _LENGTH_OVERHEAD
