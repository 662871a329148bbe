"""A log as it is found on disk: what to trust, what to check, what to cut.

After a clean stop nothing is scanned. Otherwise every segment from the recovery point on is read:
batches are checked, indexes are made anew, and the first bad byte ends the log. Older segments were
flushed with their indexes before the recovery point passed them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater import _core
from headwater.io import Disk
from headwater.model import TopicPartition
from headwater.storage import names
from headwater.storage.appends import read_marker
from headwater.storage.epochs import EpochCache, read_epochs
from headwater.storage.producers import (
    ProducerStates,
    SentBatch,
    SnapshotCorrupt,
    increment_sequence,
)
from headwater.storage.segment import Segment
from headwater.storage.txn_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CHECKPOINT_DELETED = ".checkpoint.deleted"  # snapshots of the metadata log are not ours
_RELATIVE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What an unclean stop cost one partition."""

    tp: TopicPartition
    truncated_bytes: int
    reason: str
    at_offset: int


@dataclass(slots=True)
class Loaded:
    """The parts of a log."""

    segments: list[Segment]
    start: int
    end: int
    recovery_point: int
    producers: ProducerStates
    epochs: EpochCache
    snapshots: list[int]
    reports: list[RecoveryReport]


def load(
    disk: Disk,
    path: str,
    tp: TopicPartition,
    *,
    start: int,
    recovery_point: int,
    clean: bool,
    index_interval_bytes: int,
    now_ms: int,
    producer_expiration_ms: int,
) -> Loaded:
    """Reads the directory of a partition and leaves it in order. Blocks on the device."""
    _finish_swaps(disk, path)
    segments, snapshots, reports = _find_files(disk, path)
    epochs = read_epochs(disk, f"{path}/{names.LEADER_EPOCHS}")
    producers = ProducerStates(tp, start)
    loader = _Loader(disk, path, tp, segments, snapshots, epochs, producers, reports)
    loader.index_interval_bytes = index_interval_bytes
    loader.now_ms = now_ms
    loader.producer_expiration_ms = producer_expiration_ms
    end = loader.bring_up(start, len(segments) if clean else _floor(segments, recovery_point))
    if end < start or not segments:
        loader.drop_all()
        segments.append(Segment.create(disk, path, start, now_ms=now_ms))
        end = start
    start = max(start, segments[0].base)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    producers.end = end
    loader.drop_stray_snapshots(start, end)
    recovery_point = end if clean else min(recovery_point, end)
    return Loaded(segments, start, end, recovery_point, producers, epochs, snapshots, reports)


def note_batch(
    producers: ProducerStates,
    batch: _core.Batch,
    chunk: Buffer,
    txn_index: TransactionIndex | None,
) -> None:
    """Follows one batch with a producer that is in the log. With `txn_index`, aborted transactions
    go there; without it, they already are there."""
    if not batch.is_control:
        first = batch.base_sequence
        last = increment_sequence(first, batch.last_offset_delta)
        sent = SentBatch(first, last, batch.base_offset, batch.last_offset, batch.max_timestamp)
        producers.add(
            batch.producer_id,
            batch.producer_epoch,
            sent,
            transactional=batch.is_transactional,
        )
        return
    found = read_marker(chunk, batch.position)
    if found is None:
        return
    marker, timestamp = found
    completed = producers.end_transaction(
        batch.producer_id, batch.producer_epoch, marker, batch.base_offset, timestamp
    )
    if completed is None:
        return
    if completed.is_abort and txn_index is not None:
        txn_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_after(completed),
            )
        )
    producers.complete(completed)


def replay_producers(
    producers: ProducerStates, segments: list[Segment], from_offset: int, to_offset: int
) -> None:
    """Brings producer states from one offset to another by the batches in between."""
    for segment in segments[_floor(segments, from_offset) :]:
        if segment.base >= to_offset:
            break
        begin = segment.index.lookup(from_offset) if from_offset > segment.base else 0
        for _, batch, chunk in segment.scan(begin, check_crc=False):
            if batch.base_offset >= to_offset:
                break
            if batch.base_offset >= from_offset and batch.producer_id >= 0:
                note_batch(producers, batch, chunk, None)
    producers.end = to_offset


def load_producers(
    disk: Disk,
    path: str,
    producers: ProducerStates,
    snapshots: list[int],
    *,
    start: int,
    upto: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Loads the newest good snapshot at or below `upto`; drops those that are not good."""
    for offset in reversed(snapshots.copy()):
        if offset > upto or offset < start:
            continue
        file = f"{path}/{names.offset_name(offset, names.SNAPSHOT)}"
        try:
            producers.load(disk.read(file), offset, now_ms=now_ms, expiration_ms=expiration_ms)
            return
        except SnapshotCorrupt:
            disk.remove(file)
            snapshots.remove(offset)
    producers.clear(start)
    producers.snapshot_offset = start


def _floor(segments: list[Segment], offset: int) -> int:
    """The place of the segment that has the offset, or would have it."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base) - 1)


class _Loader:
    """The work on one directory."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        tp: TopicPartition,
        segments: list[Segment],
        snapshots: list[int],
        epochs: EpochCache,
        producers: ProducerStates,
        reports: list[RecoveryReport],
    ) -> None:
        self.disk = disk
        self.path = path
        self.tp = tp
        self.segments = segments
        self.snapshots = snapshots
        self.epochs = epochs
        self.producers = producers
        self.reports = reports
        self.index_interval_bytes = 0
        self.now_ms = 0
        self.producer_expiration_ms = 0

    def bring_up(self, start: int, first_unflushed: int) -> int:
        """Checks what must be checked; gives the end of the log."""
        segments = self.segments
        for segment in segments[:first_unflushed]:
            if not _indexes_are_sane(segment):
                self._reindex(segment)
        if first_unflushed < len(segments):
            end = segments[first_unflushed].base
        else:
            end = segments[-1].next_offset() if segments else start
        self._load_producers(self.producers, start, end)
        recovered = False
        for place in range(first_unflushed, len(segments)):
            recovered = True
            end, reason = self._recover(segments[place])
            if reason is not None:
                self._drop_from(place + 1)
                break
            if place + 1 < len(segments):
                segments[place].seal()
        if recovered and end > self.producers.snapshot_offset:
            self._save_snapshot()
        return end

    def _load_producers(self, producers: ProducerStates, start: int, upto: int) -> None:
        load_producers(
            self.disk,
            self.path,
            producers,
            self.snapshots,
            start=start,
            upto=upto,
            now_ms=self.now_ms,
            expiration_ms=self.producer_expiration_ms,
        )
        if producers.end < upto:
            replay_producers(producers, self.segments, producers.end, upto)

    def _reindex(self, segment: Segment) -> None:
        """Makes the indexes of a flushed segment anew. Its batches are not judged: what was
        flushed once is not cut without anybody asking for it."""
        producers = ProducerStates(self.tp)
        self._load_producers(producers, 0, segment.base)
        segment.start_reindexing()
        for position, batch, chunk in segment.scan(check_crc=False):
            segment.appended(
                position,
                batch.size,
                batch.last_offset,
                batch.max_timestamp,
                self.index_interval_bytes,
            )
            if batch.producer_id >= 0:
                note_batch(producers, batch, chunk, segment.txn_index)
        segment.size = self.disk.size(segment.path(names.LOG))
        segment.dirty = True
        segment.seal()

    def _recover(self, segment: Segment) -> tuple[int, str | None]:
        """Reads a segment, makes its indexes anew and cuts it at the first bad byte."""
        size = segment.size
        segment.start_reindexing()
        epochs, producers, interval = self.epochs, self.producers, self.index_interval_bytes
        latest_epoch = epochs.latest
        end, good = segment.base, 0
        reason: str | None = None
        scan = segment.scan(check_crc=True)
        for position, batch, chunk in scan:
            last_offset = batch.last_offset
            if batch.base_offset < end or not 0 <= last_offset - segment.base <= _RELATIVE_MAX:
                reason = f"offset {batch.base_offset} after {end - 1}"
                break
            segment.appended(position, batch.size, last_offset, batch.max_timestamp, interval)
            if batch.leader_epoch > latest_epoch:
                latest_epoch = batch.leader_epoch
                epochs.assign(latest_epoch, batch.base_offset)
            if batch.producer_id >= 0:
                note_batch(producers, batch, chunk, segment.txn_index)
            end, good = last_offset + 1, position + batch.size
        producers.end = end
        reason = reason or scan.reason
        segment.size = good
        segment.dirty = True
        if good < size:
            segment.cut_at(good)
            reason = reason or "unreadable"
            self.reports.append(RecoveryReport(self.tp, size - good, reason, end))
        return end, reason

    def _drop_from(self, place: int) -> None:
        """What comes after a cut does not belong to the log any more."""
        for segment in reversed(self.segments[place:]):
            self.reports.append(
                RecoveryReport(self.tp, segment.size, "after a truncated segment", segment.base)
            )
            segment.close()
            for suffix in names.SEGMENT_SUFFIXES:
                if self.disk.exists(segment.path(suffix)):
                    self.disk.remove(segment.path(suffix))
        del self.segments[place:]

    def drop_all(self) -> None:
        self._drop_from(0)
        self.epochs.clear()
        for offset in self.snapshots:
            self.disk.remove(f"{self.path}/{names.offset_name(offset, names.SNAPSHOT)}")
        self.snapshots.clear()
        self.producers.clear(0)

    def drop_stray_snapshots(self, start: int, end: int) -> None:
        """Keeps those that a segment begins with and the one at the end."""
        bases = {segment.base for segment in self.segments}
        for offset in self.snapshots.copy():
            if not (start <= offset <= end and (offset in bases or offset == end)):
                self.disk.remove(f"{self.path}/{names.offset_name(offset, names.SNAPSHOT)}")
                self.snapshots.remove(offset)

    def _save_snapshot(self) -> None:
        offset = self.producers.end
        write_snapshot(self.disk, self.path, self.producers)
        if offset not in self.snapshots:
            self.snapshots.append(offset)
            self.snapshots.sort()


def write_snapshot(disk: Disk, path: str, producers: ProducerStates) -> str:
    """Writes the producer snapshot at the states' end, not yet durable; says to which file."""
    target = f"{path}/{names.offset_name(producers.end, names.SNAPSHOT)}"
    file = disk.open(target, create=True)
    try:
        file.truncate(0)
        file.append(producers.render())
    finally:
        file.close()
    producers.snapshot_offset = producers.end
    return target


def _indexes_are_sane(segment: Segment) -> bool:
    return (
        segment.index.is_sane(segment.size)
        and segment.time_index.is_sane()
        and segment.txn_index.is_sane(segment.base)
    )


def _finish_swaps(disk: Disk, path: str) -> None:
    """Ends what a crash interrupted: half-made compacted segments go, whole ones take over."""
    cleaned: list[tuple[int, str]] = []
    swaps: list[tuple[int, str]] = []
    for name in disk.list(path):
        file, offset = f"{path}/{name}", names.offset_of(name)
        if name.endswith(names.DELETED) and not name.endswith(_CHECKPOINT_DELETED):
            disk.remove(file)
        elif name.endswith(names.CLEANED) and offset is not None:
            cleaned.append((offset, file))
        elif name.endswith(names.SWAP) and offset is not None:
            swaps.append((offset, file))
    # Swaps of a split are renamed from the highest down: one at or above a `.cleaned` file is of
    # a step that had not finished.
    unfinished = min((offset for offset, _ in cleaned), default=None)
    for offset, file in swaps.copy():
        if unfinished is not None and offset >= unfinished:
            disk.remove(file)
            swaps.remove((offset, file))
    for _, file in cleaned:
        disk.remove(file)
    if not swaps:
        return
    first, last = _swap_range(disk, path, swaps)
    for name in disk.list(path):
        swapped_offset = names.offset_of(name)
        if swapped_offset is None or name.endswith(names.SWAP):
            continue
        if first <= swapped_offset < last:
            disk.remove(f"{path}/{name}")
    for _, file in swaps:
        disk.rename(file, file.removesuffix(names.SWAP))


def _swap_range(disk: Disk, path: str, swaps: list[tuple[int, str]]) -> tuple[int, int]:
    """The offsets that the swapped segments stand for."""
    first, last = 2**63, -1
    for offset, file in swaps:
        if not file.endswith(names.LOG + names.SWAP):
            continue
        reader = disk.open(file)
        data = reader.pread(reader.size(), 0)
        reader.close()
        batches, _, _ = _core.scan(data, check_crc=False)
        first = min(first, offset)
        last = max(last, batches[-1].last_offset + 1 if batches else offset)
    return first, last


def _find_files(disk: Disk, path: str) -> tuple[list[Segment], list[int], list[RecoveryReport]]:
    """The segments and the producer snapshots; indexes that belong to no segment go."""
    found = disk.list(path)
    bases = sorted(
        offset
        for name in found
        if name.endswith(names.LOG) and (offset := names.offset_of(name)) is not None
    )
    snapshots = sorted(
        offset
        for name in found
        if name.endswith(names.SNAPSHOT) and (offset := names.offset_of(name)) is not None
    )
    known = set(bases)
    for name in found:
        is_index = name.endswith((names.INDEX, names.TIME_INDEX, names.TXN_INDEX))
        if is_index and names.offset_of(name) not in known:
            disk.remove(f"{path}/{name}")
    return [Segment.find(disk, path, base) for base in bases], snapshots, []
