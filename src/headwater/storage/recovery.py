"""Loads a log from disk: decides what to trust, what to check and what to cut.

After a clean stop nothing is scanned. Otherwise every segment from the recovery point on is read:
batches are checked, indexes are rebuilt, and the first bad byte ends the log. Older segments were
flushed with their indexes before the recovery point passed them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.io import Disk
from headwater.model import TopicPartition
from headwater.storage import names
from headwater.storage.epochs import EpochCache, read_epochs
from headwater.storage.failures import is_full
from headwater.storage.producer_state import ProducerStates, Snapshots, note_batch
from headwater.storage.segment import Segment, segment_at

_RELATIVE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """A part of a log that was cut after an unclean stop."""

    tp: TopicPartition
    truncated_bytes: int
    reason: str
    at_offset: int


@dataclass(slots=True)
class Loaded:
    """The parts of a log, while it is loaded."""

    disk: Disk
    path: str
    tp: TopicPartition
    index_interval_bytes: int
    gaps_to: int
    now_ms: int
    producer_expiration_ms: int
    segments: list[Segment]
    snapshots: Snapshots
    epochs: EpochCache
    producers: ProducerStates
    start: int
    end: int = 0
    recovery_point: int = 0
    reports: list[RecoveryReport] = field(default_factory=list)


def load(
    disk: Disk,
    path: str,
    tp: TopicPartition,
    *,
    start: int,
    recovery_point: int,
    clean: bool,
    index_interval_bytes: int,
    gaps_to: int,
    now_ms: int,
    producer_expiration_ms: int,
) -> Loaded:
    """Reads and repairs the directory of a partition. Blocks on the device. Compaction may have
    left gaps between segments up to `gaps_to`."""
    _tidy(disk, path)
    segments, snapshot_offsets = _find(disk, path)
    log = Loaded(
        disk,
        path,
        tp,
        index_interval_bytes,
        gaps_to,
        now_ms,
        producer_expiration_ms,
        segments,
        Snapshots(disk, path, snapshot_offsets),
        read_epochs(disk, f"{path}/{names.LEADER_EPOCHS}"),
        ProducerStates(tp),
        start,
    )
    log.end = _bring_up(log, len(segments) if clean else segment_at(segments, recovery_point))
    if log.end < start or not segments:
        _start_anew(log)
    log.start = max(start, segments[0].base)
    log.recovery_point = log.end if clean else min(recovery_point, log.end)
    log.epochs.truncate_from_end(log.end)
    log.epochs.truncate_from_start(log.start)
    bases = {segment.base for segment in segments}
    log.snapshots.drop(
        lambda offset: (
            not log.start <= offset <= log.end or (offset not in bases and offset != log.end)
        )
    )
    return log


def _bring_up(log: Loaded, first_unflushed: int) -> int:
    """Checks and repairs the segments; returns the end of the log."""
    segments = log.segments
    for segment in segments[:first_unflushed]:
        if not _indexes_are_sane(segment):
            _reindex(log, segment)
    if first_unflushed < len(segments):
        end = segments[first_unflushed].base
    else:
        end = segments[-1].next_offset() if segments else log.start
    _restore_producers(log, log.producers, end)
    for place in range(first_unflushed, len(segments)):
        end, is_cut = _recover(log, segments[place])
        if place + 1 == len(segments):
            break
        # Without compaction a segment begins where the one before ends: a gap is a loss that fell
        # on the end of a batch, such as that of all that was written since a flush.
        if is_cut or max(end, log.gaps_to) < segments[place + 1].base:
            _drop_lost(log, place + 1)
            break
        segments[place].seal()
    if first_unflushed < len(segments):
        _save_producers(log, end)
    if log.reports:
        # What was cut must be gone for good before anything is appended: a second crash could
        # bring it back behind batches that fit before it.
        segments[-1].file.sync()
        log.disk.sync_dir(log.path)
    for segment in segments:
        segment.release()
    return end


def _save_producers(log: Loaded, end: int) -> None:
    """Writes a snapshot to spare the next start work; a full disk must not prevent this one."""
    try:
        log.snapshots.save(log.producers, end)
    except OSError as error:
        if not is_full(error):
            raise


def _restore_producers(log: Loaded, producers: ProducerStates, end: int) -> None:
    # A snapshot below the first segment is out of date: the batches between them are gone. Its
    # producers would be refused; producers that are not known may go on.
    first = log.segments[0].base if log.segments else end
    log.snapshots.restore(
        producers,
        log.segments,
        start=min(max(log.start, first), end),
        end=end,
        now_ms=log.now_ms,
        expiration_ms=log.producer_expiration_ms,
    ).run()


def _recover(log: Loaded, segment: Segment) -> tuple[int, bool]:
    """Scans a segment, rebuilds its indexes and cuts it at the first bad byte. Returns the offset
    after the last good batch, and whether anything was cut."""
    size = segment.size
    segment.start_reindexing()
    epochs, producers = log.epochs, log.producers
    epoch = epoch_end = -1  # the cache says this epoch up to this offset
    offset_max = segment.base + _RELATIVE_MAX
    end, good = segment.base, 0
    reason: str | None = None
    scan = segment.scan(check_crc=True)
    for start, batches, chunk in scan.chunks():
        in_order = 0
        for batch in batches:
            last_offset = batch.last_offset
            if not end <= batch.base_offset <= last_offset <= offset_max:
                reason = f"offset {batch.base_offset} where {end} or more was expected"
                break
            if batch.leader_epoch != epoch or last_offset >= epoch_end:
                epoch = batch.leader_epoch
                if epoch >= 0:
                    epoch_end = epochs.correct(
                        epoch, base_offset=batch.base_offset, last_offset=last_offset
                    )
            if batch.producer_id >= 0:
                note_batch(producers, batch, chunk, segment.txn_index)
            end = last_offset + 1
            in_order += 1
        if in_order:
            segment.found(start, batches[:in_order], log.index_interval_bytes)
            good = segment.size
        if reason is not None:
            break
    segment.recovered(good)
    if good == size:
        return end, False
    segment.cut_at(good)
    segment.file.sync()  # or the next power cut could bring back what was replaced by then
    reason = reason or scan.reason or "unreadable"
    log.reports.append(RecoveryReport(log.tp, size - good, reason, end))
    return end, True


def _reindex(log: Loaded, segment: Segment) -> None:
    """Rebuilds the indexes of a flushed segment. Its batches are not checked: what was flushed is
    not cut unasked."""
    producers = ProducerStates(log.tp)
    _restore_producers(log, producers, segment.base)
    size = segment.size
    segment.start_reindexing()
    for start, batches, chunk in segment.scan(check_crc=False).chunks():
        segment.found(start, batches, log.index_interval_bytes)
        for batch in batches:
            if batch.producer_id >= 0:
                note_batch(producers, batch, chunk, segment.txn_index)
    segment.recovered(size)
    segment.seal()


def _drop_lost(log: Loaded, place: int) -> None:
    """Drops the segments after a cut, which no longer belong to the log."""
    for segment in log.segments[place:]:
        reason = "after the end of what was recovered"
        log.reports.append(RecoveryReport(log.tp, segment.size, reason, segment.base))
    _drop(log, place)


def _drop(log: Loaded, place: int) -> None:
    for segment in reversed(log.segments[place:]):
        segment.close()
        for path in segment.rename(names.DELETED):
            log.disk.remove(path)
    del log.segments[place:]


def _start_anew(log: Loaded) -> None:
    """Begins an empty log: everything was deleted, or there never was anything."""
    was_there = bool(log.segments)
    _drop(log, 0)
    log.epochs.clear()
    log.snapshots.restart_at(log.start)
    log.producers.clear()
    log.segments.append(Segment.create(log.disk, log.path, log.start, now_ms=log.now_ms))
    if was_there:
        log.disk.sync_dir(log.path)
    log.end = log.start


def _indexes_are_sane(segment: Segment) -> bool:
    return (
        segment.index.is_sane(segment.size)
        and segment.time_index.is_sane()
        and segment.txn_index.is_sane(segment.base)
    )


_CHECKPOINT_DELETED = ".checkpoint.deleted"  # of snapshots of the metadata log


def _tidy(disk: Disk, path: str) -> None:
    """Removes deleted files and half-made compacted segments; finishes swaps whose new segment is
    complete."""
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
    # Segments that replace others are renamed from the highest offset down: a swap at or above a
    # `.cleaned` file belongs to a step that had not finished.
    unfinished = min((offset for offset, _ in cleaned), default=None)
    for offset, file in swaps.copy():
        if unfinished is not None and offset >= unfinished:
            disk.remove(file)
            swaps.remove((offset, file))
    for _, file in cleaned:
        disk.remove(file)
    if swaps:
        _swap(disk, path, swaps)


def _swap(disk: Disk, path: str, swaps: list[tuple[int, str]]) -> None:
    first, end = _range_of(disk, swaps)
    for name in disk.list(path):
        offset = names.offset_of(name)
        if offset is not None and not name.endswith(names.SWAP) and first <= offset < end:
            disk.remove(f"{path}/{name}")
    disk.sync_dir(path)  # or an old one could come back beside the new one
    for _, file in swaps:
        disk.rename(file, file.removesuffix(names.SWAP))


def _range_of(disk: Disk, swaps: list[tuple[int, str]]) -> tuple[int, int]:
    """Returns the range of offsets that the new segments replace."""
    first, end = 2**63, -1
    for offset, file in swaps:
        if file.endswith(names.LOG + names.SWAP):
            segment = Segment.find(disk, file.rpartition("/")[0], offset, suffix=names.SWAP)
            first, end = min(first, offset), max(end, offset)
            for _, _, _, last, _ in segment.headers(0):
                end = max(end, last + 1)
            segment.close()
    return first, end


def _find(disk: Disk, path: str) -> tuple[list[Segment], list[int]]:
    """Returns the segments and the offsets of producer snapshots, both in order. Removes indexes
    without a segment."""
    bases: list[int] = []
    snapshots: list[int] = []
    indexes: list[tuple[int | None, str]] = []
    for name in disk.list(path):
        offset = names.offset_of(name)
        if name.endswith((names.INDEX, names.TIME_INDEX, names.TXN_INDEX)):
            indexes.append((offset, name))
        elif offset is not None and name.endswith(names.LOG):
            bases.append(offset)
        elif offset is not None and name.endswith(names.SNAPSHOT):
            snapshots.append(offset)
    known = set(bases)
    for offset, name in indexes:
        if offset not in known:
            disk.remove(f"{path}/{name}")
    return [Segment.find(disk, path, base) for base in sorted(bases)], sorted(snapshots)
