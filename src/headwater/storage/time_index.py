"""The offsets of timestamps in a segment: a sparse list of (largest timestamp so far, its offset).

Both columns only grow. As with the offset index, that of the active segment lives in memory and is
written when the segment is closed or rolled.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import Struct

from headwater.io import Disk, Mapping
from headwater.model import NO_TIMESTAMP

_ENTRY = Struct(">qi")
ENTRY_BYTES = 12


class TimeIndex:
    __slots__ = ("_disk", "_mapping", "_offsets", "_timestamps", "base", "path")

    def __init__(self, disk: Disk, path: str, base: int) -> None:
        self._disk = disk
        self.path = path
        self.base = base
        self._timestamps: array[int] | None = None
        self._offsets: array[int] | None = None  # relative
        self._mapping: Mapping | None = None

    def __len__(self) -> int:
        if self._timestamps is not None:
            return len(self._timestamps)
        return len(self._map()) // ENTRY_BYTES

    def entry(self, slot: int) -> tuple[int, int]:
        if self._timestamps is not None:
            assert self._offsets is not None
            return self._timestamps[slot], self.base + self._offsets[slot]
        timestamp, relative = _ENTRY.unpack_from(self._map(), slot * ENTRY_BYTES)
        return timestamp, self.base + relative

    def lookup(self, timestamp: int) -> int:
        """Returns the offset of the last entry whose timestamp is at or below this one, else the
        base."""
        if self._timestamps is not None:
            slot = bisect_right(self._timestamps, timestamp) - 1
        else:
            low, high = 0, len(self)
            while low < high:
                middle = (low + high) // 2
                if self.entry(middle)[0] <= timestamp:
                    low = middle + 1
                else:
                    high = middle
            slot = low - 1
        return self.entry(slot)[1] if slot >= 0 else self.base

    def last(self) -> tuple[int, int]:
        """Returns (timestamp, offset) of the last entry, without loading the others."""
        if self._timestamps is not None:
            return self.entry(-1) if self._timestamps else (NO_TIMESTAMP, self.base)
        size = self._disk.size(self.path) if self._disk.exists(self.path) else 0
        if size < ENTRY_BYTES:
            return NO_TIMESTAMP, self.base
        file = self._disk.open(self.path)
        entry = file.pread(ENTRY_BYTES, size - size % ENTRY_BYTES - ENTRY_BYTES)
        file.close()
        timestamp, relative = _ENTRY.unpack(entry)
        return timestamp, self.base + relative

    def append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if its timestamp is larger than all before."""
        if self._timestamps is None:
            self.load()
        assert self._timestamps is not None
        assert self._offsets is not None
        relative = offset - self.base
        if self._timestamps:
            if timestamp <= self._timestamps[-1]:
                return
            assert relative >= self._offsets[-1], f"offset {offset} goes back in {self.path}"
        elif timestamp <= NO_TIMESTAMP:
            return
        self._timestamps.append(timestamp)
        self._offsets.append(relative)

    def truncate_to(self, offset: int) -> None:
        """Drops all entries at or above `offset`."""
        self.load()
        assert self._timestamps is not None
        assert self._offsets is not None
        relative = offset - self.base
        keep = len(self._offsets)
        while keep and self._offsets[keep - 1] >= relative:
            keep -= 1
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def reset(self) -> None:
        self._mapping = None
        self._timestamps = array("q")
        self._offsets = array("i")

    def load(self) -> None:
        if self._timestamps is not None:
            return
        data = self._disk.read(self.path) if self._disk.exists(self.path) else b""
        timestamps, offsets = array("q"), array("i")
        for timestamp, relative in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
            if timestamps and timestamp <= timestamps[-1]:
                break  # the zeros of a file that was preallocated and not trimmed
            timestamps.append(timestamp)
            offsets.append(relative)
        self._mapping = None
        self._timestamps, self._offsets = timestamps, offsets

    def is_sane(self) -> bool:
        """Makes a quick check: length, and that the last entry is not before the first."""
        if not self._disk.exists(self.path):
            return False
        size = self._disk.size(self.path)
        if size % ENTRY_BYTES:
            return False
        if not size:
            return True
        file = self._disk.open(self.path)
        first = _ENTRY.unpack(file.pread(ENTRY_BYTES, 0))
        last = _ENTRY.unpack(file.pread(ENTRY_BYTES, size - ENTRY_BYTES))
        file.close()
        # Zeros are a page that was never written. If they were trusted, retention would take every
        # record for one of 1970.
        return bool(any(last) and last[0] >= first[0] >= 0 and last[1] >= first[1] >= 0)

    def save(self) -> None:
        if self._timestamps is None:
            return
        assert self._offsets is not None
        pack = _ENTRY.pack
        data = b"".join(map(pack, self._timestamps, self._offsets))
        file = self._disk.open(self.path, create=True)
        try:
            file.truncate(0)
            file.append(data)
        finally:
            file.close()

    def unload(self) -> None:
        """Forgets what is in memory; the file has it."""
        self._timestamps = None
        self._offsets = None
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None

    def move_to(self, path: str) -> None:
        """Follows the file to its new name."""
        self.path = path

    def _map(self) -> Mapping:
        if self._mapping is None:
            self._mapping = self._disk.map(self.path)
        return self._mapping
