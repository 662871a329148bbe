"""The aborted transactions that end in a segment, so that readers of committed data skip them."""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from headwater.io import Disk
from headwater.storage.failures import is_full

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = 34
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the abort marker
    last_stable_offset: int  # exclusive, as it was when the marker came


class TransactionIndex:
    """The file is created with the first abort; most segments never have one.

    A full disk keeps no entry from readers: its marker is in the log already. What found no room in
    the file is written with the next entry, or when the segment is sealed.
    """

    __slots__ = ("_data", "_disk", "_written", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        # All entries as in the file; None until they are needed. Objects would take many times the
        # memory, and most entries are never asked for.
        self._data: bytearray | None = None
        self._written = 0  # bytes that are in the file

    def __len__(self) -> int:
        return len(self._loaded()) // ENTRY_BYTES

    def entries(self) -> list[AbortedTransaction]:
        return [AbortedTransaction(*row[1:]) for row in _ENTRY.iter_unpack(self._loaded())]

    def _loaded(self) -> bytearray:
        if self._data is None:
            data = self._disk.read(self.path) if self._disk.exists(self.path) else b""
            self._data = bytearray(data[: len(data) - len(data) % ENTRY_BYTES])
            self._written = len(self._data)
        return self._data

    def _at(self, number: int) -> AbortedTransaction:
        return AbortedTransaction(*_ENTRY.unpack_from(self._loaded(), number * ENTRY_BYTES)[1:])

    def _first_ending_at(self, offset: int) -> int:
        """Returns the number of the first entry that ends at or above an offset."""
        return bisect_left(
            range(len(self)), offset, key=lambda number: self._at(number).last_offset
        )

    def append(self, transaction: AbortedTransaction) -> None:
        data = self._loaded()
        assert not data or self._at(-1).last_offset < transaction.last_offset
        data += _ENTRY.pack(_VERSION, *transaction)
        try:
            self.save()
        except OSError as error:
            if not is_full(error):
                raise

    def save(self) -> None:
        """Writes the entries that are not in the file yet."""
        if self._data is None or self._written == len(self._data):
            return
        file = self._disk.open(self.path, create=True)
        try:
            file.pwrite(bytes(self._data[self._written :]), self._written)
        finally:
            file.close()
        self._written = len(self._data)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions that end at or above `offset`."""
        keep = self._first_ending_at(offset) * ENTRY_BYTES
        del self._loaded()[keep:]
        if keep < self._written:
            self._disk.truncate(self.path, keep)
            self._written = keep

    def move_to(self, path: str) -> None:
        """Follows the file to its new name."""
        self.path = path

    def reset(self) -> None:
        self._data = bytearray()
        self._written = 0
        if self._disk.exists(self.path):
            self._disk.truncate(self.path, 0)

    def is_sane(self, base: int) -> bool:
        if not self._disk.exists(self.path):
            return True
        if self._disk.size(self.path) % ENTRY_BYTES:
            return False
        before = base - 1
        for entry in self.entries():
            if entry.last_offset <= before:  # a search relies on their order
                return False
            before = entry.last_offset
        return True

    def collect(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the transactions that overlap [from, to), and whether later segments cannot have
        more."""
        found = []
        for number in range(self._first_ending_at(from_offset), len(self)):
            entry = self._at(number)
            if entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found, True
        return found, False
