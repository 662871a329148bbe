"""Compaction step by step, as the broker's driver does it, for tests of storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.io import Disk
from headwater.storage import Log
from headwater.storage.cleaner import CleaningAborted, CleaningJob, CleaningLimits, find_dirty
from headwater.storage.retention import RetiredSegment

LIMITS = CleaningLimits(memory_bytes=1 << 20, load_factor=0.9, chunk_bytes=512)


def nothing() -> None: ...


def steps(
    disk: Disk,
    log: Log,
    *,
    now_ms: int,
    high_watermark: int | None = None,
    limits: CleaningLimits = LIMITS,
    checkpoint: Callable[[], None] = nothing,  # writes recovery points, and how far it is cleaned
    retired: list[RetiredSegment] | None = None,
) -> Iterator[str]:
    """Says what was done last. Whatever else happens to the log may happen in between."""
    log.end_swap()
    stable = log.last_stable_offset(
        log.end if high_watermark is None else min(high_watermark, log.end)
    )
    if not find_dirty(log, last_stable_offset=stable, now_ms=now_ms).is_worth_it:
        return
    flush = log.flush_job()
    if flush is not None:
        flush.run()
        log.flushed(flush)
    yield "flushed"
    stable = min(stable, log.trusted_end)
    checkpoint()
    if log.cleaned_to is None:
        log.mark_cleaned(log.start)
        checkpoint()
    yield "ready"
    dirty = find_dirty(log, last_stable_offset=min(stable, log.trusted_end), now_ms=now_ms)
    if not dirty.is_worth_it:
        return
    job = CleaningJob(disk, dirty, limits=limits, now_ms=now_ms)
    try:
        job.learn()
        yield "learned"
        for group in job.groups:
            segment = job.clean(group)
            yield "cleaned"
            bases = [source.base for source in group]
            if not log.begin_swap(segment, bases, truncations=job.truncations):
                segment.remove()
                return
            yield "begun"
            job.sync_names()
            yield "begun for good"
            old = log.commit_swap()
            if old is None:
                return
            if retired is not None:
                retired += old
            yield "committed"
            job.sync_names()
            yield "committed for good"
            log.end_swap()
            yield "ended"
            job.sync_names()
            yield "ended for good"
        if job.is_current:
            log.mark_cleaned(job.end)
            checkpoint()
        yield "done"
    except CleaningAborted:
        return


def clean(disk: Disk, log: Log, *, now_ms: int, limits: CleaningLimits = LIMITS) -> list[str]:
    """A whole round, with the files of the old segments gone after it."""
    retired: list[RetiredSegment] = []
    done = list(steps(disk, log, now_ms=now_ms, limits=limits, retired=retired))
    for segment in retired:
        segment.delete()
    return done
