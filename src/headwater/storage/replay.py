"""Producer states from what is on disk: a snapshot, and the batches after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater import _core
from headwater.io import Disk
from headwater.storage import names
from headwater.storage.appends import read_marker
from headwater.storage.producers import (
    ProducerStates,
    SentBatch,
    SnapshotCorrupt,
    increment_sequence,
)
from headwater.storage.segment import Segment, segment_at
from headwater.storage.txn_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from typing_extensions import Buffer


def note_batch(
    producers: ProducerStates, batch: _core.Batch, data: Buffer, txn_index: TransactionIndex | None
) -> None:
    """Follows one batch of a producer that is in the log. With `txn_index`, aborted transactions
    go there; without it, they already are there."""
    if not batch.is_control:
        first = batch.base_sequence
        last = increment_sequence(first, batch.last_offset_delta)
        sent = SentBatch(first, last, batch.base_offset, batch.last_offset, batch.max_timestamp)
        producers.add(
            batch.producer_id, batch.producer_epoch, sent, transactional=batch.is_transactional
        )
        return
    found = read_marker(data, batch.position)
    if found is None:
        return
    marker, timestamp = found
    completed = producers.end_transaction(
        batch.producer_id, batch.producer_epoch, marker, batch.base_offset, timestamp
    )
    if completed is None:
        return
    if completed.is_abort and txn_index is not None:
        stable = producers.last_stable_after(completed)
        txn_index.append(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.last_offset, stable
            )
        )
    producers.complete(completed)


def replay(
    producers: ProducerStates, segments: list[Segment], from_offset: int, to_offset: int
) -> None:
    """Brings producer states from one offset to another by the batches in between."""
    for segment in segments[segment_at(segments, from_offset) :]:
        if segment.base >= to_offset:
            break
        begin = segment.index.lookup(from_offset) if from_offset > segment.base else 0
        for _, batch, chunk in segment.scan(begin, check_crc=False):
            if batch.base_offset >= to_offset:
                break
            # The log may start within a batch, which then still counts.
            if batch.last_offset >= from_offset and batch.producer_id >= 0:
                note_batch(producers, batch, chunk, None)
    producers.end = to_offset


class Snapshots:
    """The producer snapshot files of a log, named by the offset they reach to (exclusive)."""

    __slots__ = ("_disk", "folder", "offsets")

    def __init__(self, disk: Disk, folder: str, offsets: list[int]) -> None:
        self._disk = disk
        self.folder = folder
        self.offsets = offsets  # sorted

    def path(self, offset: int) -> str:
        return f"{self.folder}/{names.offset_name(offset, names.SNAPSHOT)}"

    def save(self, producers: ProducerStates) -> str | None:
        """Writes one at the states' end if they are past the last; not yet durable. Says to which
        file."""
        offset = producers.end
        if offset <= producers.snapshot_offset:
            return None
        file = self._disk.open(self.path(offset), create=True)
        try:
            file.truncate(0)
            file.append(producers.render())
        finally:
            file.close()
        producers.snapshot_offset = offset
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()
        return self.path(offset)

    def restore(
        self,
        producers: ProducerStates,
        segments: list[Segment],
        *,
        start: int,
        end: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        """Makes the states those of the log up to `end`: the newest good snapshot, then batches.
        A snapshot that is not good goes."""
        producers.clear(start)
        producers.snapshot_offset = start
        for offset in reversed(self.offsets.copy()):
            if not start <= offset <= end:
                continue
            try:
                data = self._disk.read(self.path(offset))
                producers.load(data, offset, now_ms=now_ms, expiration_ms=expiration_ms)
                break
            except SnapshotCorrupt:
                self.drop(lambda other, bad=offset: other == bad)  # type: ignore[misc]
        if producers.end < end:
            replay(producers, segments, producers.end, end)

    def drop(self, goes: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.offsets if goes(offset)]:
            self._disk.remove(self.path(offset))
            self.offsets.remove(offset)

    def rename(self, offset: int, suffix: str) -> list[str]:
        """Takes one out under another name; says which, if there was one."""
        if offset not in self.offsets:
            return []
        path = self.path(offset)
        self._disk.rename(path, path + suffix)
        self.offsets.remove(offset)
        return [path + suffix]
