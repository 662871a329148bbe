"""The aborted transactions that end in a segment, so that readers of committed data skip them."""

from __future__ import annotations

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

    __slots__ = ("_disk", "_entries", "_written", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._written = 0  # entries that are in the file

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = []
            if self._disk.exists(self.path):
                data = self._disk.read(self.path)
                whole = data[: len(data) - len(data) % ENTRY_BYTES]
                self._entries = [AbortedTransaction(*row[1:]) for row in _ENTRY.iter_unpack(whole)]
            self._written = len(self._entries)
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        entries = self.entries()
        assert not entries or entries[-1].last_offset < transaction.last_offset
        entries.append(transaction)
        try:
            self.save()
        except OSError as error:
            if not is_full(error):
                raise

    def save(self) -> None:
        """Writes the entries that are not in the file yet."""
        if self._entries is None or self._written == len(self._entries):
            return
        data = b"".join(_ENTRY.pack(_VERSION, *each) for each in self._entries[self._written :])
        file = self._disk.open(self.path, create=True)
        try:
            file.pwrite(data, self._written * ENTRY_BYTES)
        finally:
            file.close()
        self._written = len(self._entries)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions that end at or above `offset`."""
        entries = self.entries()
        keep = len(entries)
        while keep and entries[keep - 1].last_offset >= offset:
            keep -= 1
        if keep < len(entries):
            del entries[keep:]
        if keep < self._written:
            self._disk.truncate(self.path, keep * ENTRY_BYTES)
            self._written = keep

    def move_to(self, path: str) -> None:
        """Follows the file to its new name."""
        self.path = path

    def reset(self) -> None:
        self._entries = []
        self._written = 0
        if self._disk.exists(self.path):
            self._disk.truncate(self.path, 0)

    def is_sane(self, base: int) -> bool:
        if not self._disk.exists(self.path):
            return True
        if self._disk.size(self.path) % ENTRY_BYTES:
            return False
        return all(base <= entry.last_offset for entry in self.entries())

    def collect(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the transactions that overlap [from, to), and whether later segments cannot have
        more."""
        found = []
        for entry in self.entries():
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found, True
        return found, False
