"""A new segment at the end of a log, and what has to be made durable of the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.storage import names
from headwater.storage.segment import Segment, segment_at

if TYPE_CHECKING:
    from headwater.storage.log import Log


def begin_segment(log: Log, base: int, now_ms: int) -> Segment:
    """Closes the active segment, unless it is empty and begins there already."""
    active = log.segments[-1]
    if active.base == base:
        assert active.size == 0, f"segment {base} of {log.tp} is there already"
        return active
    # Were the new name kept by a crash and an older one lost, nobody could tell that the log
    # had begun earlier. After each roll a flush is due, so this seldom has to wait.
    log.unsynced.sync_folders()
    # Even if the disk refuses it: names that were made and taken away again must not come back.
    log.unsynced.add_folder(log.path)
    active.seal()
    segment = Segment.create(
        log.disk,
        log.path,
        base,
        now_ms=now_ms,
        preallocate_bytes=log.rules.preallocate_bytes,
    )
    if active.size:
        cover_indexes(log, active)
    else:  # its successor is too far away to be the same segment
        for path in log.segments.pop().rename(names.DELETED):
            log.disk.remove(path)
    log.segments.append(segment)
    log.recent.clear()
    log.producers.end = base
    take_snapshot(log)
    return segment


def take_snapshot(log: Log) -> None:
    """Writes the producers' states as they are now."""
    written = log.snapshots.save(log.producers)
    if written is not None:
        log.cover(written)


def cover_indexes(log: Log, segment: Segment) -> None:
    """Lets the next flush make those of a segment durable."""
    kinds = names.SEGMENT_SUFFIXES[1:]
    log.unsynced.add_indexes(segment.base, (segment.path(kind) for kind in kinds))


def cover_all(log: Log) -> None:
    """Nobody knows what the last run made durable: the next flush must do it all again."""
    log.unsynced.add_folder(log.path)
    log.unsynced.add_folder(log.path.rpartition("/")[0])
    for segment in log.segments[segment_at(log.segments, log.recovery_point) : -1]:
        cover_indexes(log, segment)
    for offset in log.snapshots.offsets:
        log.cover(log.snapshots.path(offset))
    log.cover(f"{log.path}/{names.PARTITION_METADATA}")
