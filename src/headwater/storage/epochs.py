"""The offsets at which leader epochs began. Replicas compare them to find where their logs
diverge."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from headwater.io import Disk
from headwater.model import NO_EPOCH, NO_OFFSET, OffsetAndEpoch
from headwater.storage import checkpoints

_NO_END = 2**63 - 1


class EpochCache:
    """Epochs and their first offsets, both ascending. `dirty` says that the file may be behind; it
    is written with the next flush, before the recovery point passes what only memory has."""

    __slots__ = ("_epochs", "_saved", "_starts", "dirty", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = NO_EPOCH  # the newest epoch, -1 if there is none
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False
        self._saved = self.entries  # what the file has

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """Records that `epoch` begins at `start`. Entries that contradict this were never committed
        and are dropped."""
        assert epoch >= 0, f"epoch {epoch}"
        assert start >= 0, f"start offset {start}"
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        self.latest = epoch
        self.dirty = True

    def correct(self, epoch: int, *, base_offset: int, last_offset: int) -> int:
        """Makes the cache agree with a batch that recovery has read, and leaves what it says of
        other offsets. Returns the offset (exclusive) up to which it now says that the epoch
        reaches."""
        slot = bisect_right(self._starts, last_offset) - 1
        if slot < 0 or self._epochs[slot] != epoch or self._starts[slot] > base_offset:
            self.truncate_from_end(base_offset)
            if self.latest != epoch:
                self.assign(epoch, base_offset)
            slot = len(self._starts) - 1
        return self._starts[slot + 1] if slot + 1 < len(self._starts) else _NO_END

    def end_of(self, epoch: int, log_end: int) -> OffsetAndEpoch:
        """Returns the largest epoch at or below this one, and where it ends; (-1, -1) if
        unknown."""
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return OffsetAndEpoch(NO_OFFSET, NO_EPOCH)
        if epoch == self._epochs[-1]:
            return OffsetAndEpoch(log_end, epoch)
        after = bisect_right(self._epochs, epoch)
        found = self._epochs[after - 1] if after else epoch
        return OffsetAndEpoch(self._starts[after], found)

    def epoch_at(self, offset: int) -> int | None:
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def truncate_from_end(self, end: int) -> None:
        """Forgets the epochs that begin at or above `end`."""
        while self._starts and self._starts[-1] >= end:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH

    def truncate_from_start(self, start: int) -> None:
        """Forgets the epochs that end at or below `start`; the one that spans it now begins
        there."""
        below = bisect_right(self._starts, start)
        if not below or (self._starts[0] == start and below == 1):
            return
        del self._epochs[: below - 1]
        del self._starts[: below - 1]
        self._starts[0] = start
        self.dirty = True

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self.latest = NO_EPOCH
        self.dirty = True

    def take_unsaved(self, log_end: int) -> bytes | None:
        """Returns the new content of the file, None if it is up to date; the caller writes it. An
        epoch without records is left out: after a restart the leader has a new epoch anyway, and a
        thousand idle partitions need not write a file each."""
        if not self.dirty:
            return None
        entries = self.entries
        if entries and entries[-1][1] >= log_end:
            entries.pop()
        else:
            self.dirty = False
        if entries == self._saved:
            return None
        self._saved = entries
        return checkpoints.render(f"{epoch} {start}" for epoch, start in entries)

    def not_saved(self) -> None:
        """Takes note that the content has not reached the file."""
        self.dirty = True
        self._saved = [(NO_EPOCH, NO_OFFSET)]  # unlike anything that may be written


def read_epochs(disk: Disk, path: str) -> EpochCache:
    """Reads the cache from its file. A damaged file counts as empty: recovery finds the epochs of
    what it scans, and missing older ones only make a follower truncate further back."""
    if not disk.exists(path):
        return EpochCache()
    try:
        rows = checkpoints.parse(disk.read(path), path=path)
        return EpochCache((int(epoch), int(start)) for epoch, start in map(str.split, rows))
    except ValueError:
        return EpochCache()
