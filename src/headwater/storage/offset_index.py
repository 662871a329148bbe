"""The positions of batches in a segment: a sparse, sorted list of (offset, position).

An index can always be rebuilt from its segment. So the index of the active segment lives in memory
and is written once, when the segment is closed or rolled: a crash loses nothing that recovery does
not rebuild anyway, appends cost no second write, and a full disk cannot kill the process through a
mapping (a store into a sparse page for which there is no block raises SIGBUS). The index of any
other segment is mapped when it is first used.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import Struct

from headwater.io import Disk, Mapping

_ENTRY = Struct(">ii")
ENTRY_BYTES = 8
# Followers and readers at the end look at the last two pages. Searching there first leaves alone
# the pages that a plain binary search would bring into the cache.
_WARM_ENTRIES = 8192 // ENTRY_BYTES
_RELATIVE_MAX = 2**31 - 1


class OffsetIndex:
    __slots__ = ("_disk", "_mapping", "_offsets", "_positions", "base", "path")

    def __init__(self, disk: Disk, path: str, base: int) -> None:
        self._disk = disk
        self.path = path
        self.base = base
        self._offsets: array[int] | None = None  # relative, in memory while it may grow
        self._positions: array[int] | None = None
        self._mapping: Mapping | None = None

    def __len__(self) -> int:
        if self._offsets is not None:
            return len(self._offsets)
        return len(self._map()) // ENTRY_BYTES

    def lookup(self, offset: int) -> int:
        """Returns the position of the last entry at or below `offset`, 0 if there is none."""
        relative = offset - self.base
        if self._offsets is not None:
            assert self._positions is not None
            slot = bisect_right(self._offsets, relative) - 1
            return self._positions[slot] if slot >= 0 else 0
        mapping = self._map()
        slot = _last_at_or_below(mapping, relative)
        return int(_ENTRY.unpack_from(mapping, slot * ENTRY_BYTES)[1]) if slot >= 0 else 0

    def first_offset_from(self, position: int) -> int | None:
        """Returns the offset of the first entry at or after a byte position."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low)[0] if low < len(self) else None

    def entry(self, slot: int) -> tuple[int, int]:
        if self._offsets is not None:
            assert self._positions is not None
            return self.base + self._offsets[slot], self._positions[slot]
        relative, position = _ENTRY.unpack_from(self._map(), slot * ENTRY_BYTES)
        return self.base + relative, position

    def append(self, offset: int, position: int) -> None:
        if self._offsets is None:
            self.load()
        assert self._offsets is not None
        assert self._positions is not None
        relative = offset - self.base
        assert 0 <= relative <= _RELATIVE_MAX, f"offset {offset} does not fit index {self.path}"
        assert not self._offsets or relative > self._offsets[-1], (
            f"offset {offset} not above the last one in {self.path}"
        )
        self._offsets.append(relative)
        self._positions.append(position)

    def truncate_to(self, offset: int) -> None:
        """Drops all entries at or above `offset`."""
        self.load()
        assert self._offsets is not None
        assert self._positions is not None
        relative = offset - self.base
        keep = len(self._offsets)
        while keep and self._offsets[keep - 1] >= relative:
            keep -= 1
        del self._offsets[keep:]
        del self._positions[keep:]

    def reset(self) -> None:
        """Empties the index, to be filled again."""
        self._mapping = None
        self._offsets = array("i")
        self._positions = array("i")

    def load(self) -> None:
        """Brings the index into memory, for appends."""
        if self._offsets is not None:
            return
        entries = array("i")
        if self._disk.exists(self.path):
            data = self._disk.read(self.path)
            entries.frombytes(data[: len(data) - len(data) % ENTRY_BYTES])
            entries.byteswap()
        self._mapping = None
        self._offsets = entries[0::2]
        self._positions = entries[1::2]
        # A file that was preallocated and not trimmed ends in zeros.
        while self._positions and self._positions[-1] == 0 and self._offsets[-1] == 0:
            self._offsets.pop()
            self._positions.pop()

    def is_sane(self, log_bytes: int) -> bool:
        """Makes a quick check: length, first and last entry."""
        if not self._disk.exists(self.path):
            return False
        size = self._disk.size(self.path)
        if size % ENTRY_BYTES:
            return False
        if not size:
            return True
        file = self._disk.open(self.path)
        relative, position = _ENTRY.unpack(file.pread(ENTRY_BYTES, size - ENTRY_BYTES))
        file.close()
        return bool(relative >= 0 and 0 < position < log_bytes)

    def last_position(self) -> int:
        """Returns the position of the last entry, without loading the others."""
        if self._offsets is not None:
            assert self._positions is not None
            return self._positions[-1] if self._positions else 0
        size = self._disk.size(self.path)
        if size < ENTRY_BYTES:
            return 0
        file = self._disk.open(self.path)
        _, position = _ENTRY.unpack(file.pread(ENTRY_BYTES, size - ENTRY_BYTES))
        file.close()
        return int(position)

    def save(self) -> None:
        """Writes the index to its file, if it is in memory."""
        if self._offsets is None:
            return
        assert self._positions is not None
        entries = array("i", bytes(len(self._offsets) * ENTRY_BYTES))
        entries[0::2] = self._offsets
        entries[1::2] = self._positions
        entries.byteswap()
        file = self._disk.open(self.path, create=True)
        try:
            file.truncate(0)
            file.append(entries.tobytes())
        finally:
            file.close()

    def unload(self) -> None:
        """Forgets what is in memory; the file has it."""
        self._offsets = None
        self._positions = None
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


def _last_at_or_below(mapping: Mapping, relative: int) -> int:
    """Returns the slot of the last entry at or below a relative offset, -1 if there is none."""
    unpack = _ENTRY.unpack_from
    low, high = 0, len(mapping) // ENTRY_BYTES
    warm = high - _WARM_ENTRIES
    if warm > 0:
        if unpack(mapping, warm * ENTRY_BYTES)[0] <= relative:
            low = warm
        else:
            high = warm
    while low < high:
        middle = (low + high) // 2
        if unpack(mapping, middle * ENTRY_BYTES)[0] <= relative:
            low = middle + 1
        else:
            high = middle
    return low - 1
