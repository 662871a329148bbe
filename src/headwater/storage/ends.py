"""The two ends of a log: retention and deletion move its start, truncation moves its end.

These are methods of `Log`; each leaves it whole, and what must not come back is durable before
anything is written after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ApiError
from headwater.storage import retention, rolling, swaps
from headwater.storage.failures import StorageFailed
from headwater.storage.retention import Reason, RetiredSegment
from headwater.storage.segment import Segment

if TYPE_CHECKING:
    from headwater.storage.log import Log


def delete_records_before(log: Log, offset: int) -> None:
    """Moves the start of the log; segments below it go with the next `retire`."""
    if offset > log.end:
        raise log.out_of_range(offset)
    if offset <= log.start:
        return
    log.start = offset
    log.epochs.truncate_from_start(offset)
    log.producers.start_at(offset)


def retire(log: Log, now_ms: int, high_watermark: int) -> list[RetiredSegment]:
    """Takes the segments out of the log that retention says must go."""
    with log.health.errors():
        chosen = list(
            retention.expired(
                log.segments,
                log.config,
                log_start=log.start,
                log_end=log.end,
                high_watermark=high_watermark,
                now_ms=now_ms,
            )
        )
        if not chosen:
            return []
        swaps.abandon(log)
        takes_all = len(chosen) == len(log.segments)
        if takes_all:
            rolling.begin_segment(log, log.end, now_ms)
        # What stays must be durable first: a crash that kept the removals but lost the new
        # name would leave no segment to say where the log ends, and one that lost the
        # producers' snapshot would bring back sequences of long ago.
        if takes_all or log.recovery_point < log.segments[len(chosen)].base:
            _flush_here(log)
        retired = [retention.take_out(log, segment, reason) for segment, reason in chosen]
        # What was never flushed must not come back below a recovery point that has passed it.
        log.unsynced.add_folder(log.path)
        del log.segments[: len(chosen)]
        log.size = sum(segment.size for segment in log.segments)
        delete_records_before(log, max(log.start, log.segments[0].base))
    return retired


def _flush_here(log: Log) -> None:
    """Waits for the device. Whoever can flushes before, in a worker, and little is left. On a
    full disk what cannot be written must not keep retention from making room."""
    job = log.flush_job()
    if job is None:
        return
    try:
        job.run()
    except StorageFailed:
        raise
    except ApiError:
        log.not_flushed(job)
    else:
        log.flushed(job)


def truncate_to(log: Log, offset: int) -> list[RetiredSegment]:
    """Drops all from `offset` on. The segments that fall away whole are handed back."""
    if offset >= log.end:
        log.epochs.truncate_from_end(log.end)
        return []
    if offset < log.segments[0].base:
        return truncate_and_start_at(log, offset)
    with log.health.errors():
        swaps.abandon(log)
        retired = []
        while log.segments[-1].base > offset:
            retired.append(retention.take_out(log, log.segments.pop(), Reason.TRUNCATION))
        log.segments[-1].truncate_to(offset)
        _reset_ends(log, min(log.start, offset), offset)
        log.epochs.truncate_from_end(offset)
        _reload_producers(log, offset)
        _close_gap(log)
        _make_truncation_durable(log)
    return retired


def _close_gap(log: Log) -> None:
    """A cut may fall where compaction, here or at the leader, has left nothing, so that what is
    appended next leaves a gap. It must be within a segment: between two it looks like a loss."""
    active = log.segments[-1]
    reached = active.base
    for _, _, _, last, _ in active.places(active.index.lookup(log.end)):
        reached = last + 1
    if active.size and reached < log.end:
        rolling.begin_segment(log, reached, log.last_flush_ms)
        log.producers.end = log.end


def truncate_and_start_at(
    log: Log, offset: int, log_start: int | None = None
) -> list[RetiredSegment]:
    """Drops everything and begins anew at an offset."""
    with log.health.errors():
        swaps.abandon(log)
        retired = []
        while log.segments:
            retired.append(retention.take_out(log, log.segments.pop(), Reason.TRUNCATION))
        created_ms = log.last_flush_ms
        log.segments.append(Segment.create(log.disk, log.path, offset, now_ms=created_ms))
        log.unsynced.add_folder(log.path)
        _reset_ends(log, offset if log_start is None else log_start, offset)
        log.epochs.clear()
        log.snapshots.drop(lambda _: True)
        log.producers.clear(offset)
        log.producers.snapshot_offset = offset
        _make_truncation_durable(log)
    return retired


def _make_truncation_durable(log: Log) -> None:
    """What was cut must not come back behind what is appended next, nor may a recovery point
    above the new end leave that unchecked, nor an epoch that is gone make another replica truncate
    what took its place. Truncation is rare enough to wait for it."""
    log.segments[-1].file.sync()
    log.unsynced.add_folder(log.path)
    log.unsynced.sync_folders()
    epochs = log.save_epochs(log.end)
    if epochs is not None:
        epochs.run()
    if log.on_truncated is not None:
        log.on_truncated()


def _reset_ends(log: Log, start: int, end: int) -> None:
    log.start, log.end = start, end
    log.size = sum(segment.size for segment in log.segments)
    log.recovery_point = min(log.recovery_point, end)
    if log.cleaned_to is not None:
        log.cleaned_to = min(log.cleaned_to, end)
    log.truncations += 1
    log.recent.clear()
    log.last_bound = (-1, 0, 0)


def _reload_producers(log: Log, end: int) -> None:
    """The states as they were at a lower end."""
    log.snapshots.drop(lambda offset: offset > end)
    log.snapshots.restore(
        log.producers,
        log.segments,
        start=log.start,
        end=end,
        now_ms=log.last_flush_ms,
        expiration_ms=log.producer_expiration_ms,
    )
