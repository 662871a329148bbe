"""Which logs are worth compacting, and how much of them may be.

Kafka's rules: never the active segment, nothing at or above the last stable offset, nothing that is
younger than `min.compaction.lag.ms`; worth it when the dirty part is larger than
`min.cleanable.dirty.ratio` of the whole, or is older than `max.compaction.lag.ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.storage.log import Log
from headwater.storage.segment import Segment, segment_at

_FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Dirty:
    """What compaction could do for a log now."""

    log: Log
    first_dirty: int
    upper_bound: int  # the base of the first segment that must be left alone
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_worth_it(self) -> bool:
        if self.is_overdue and self.dirty_bytes:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio


def look_at(log: Log, *, last_stable_offset: int, now_ms: int) -> Dirty:
    """Reads nothing, unless the log has limits of time."""
    segments, config = log.segments, log.config
    first_dirty = log.cleaned_to
    if first_dirty is None or not log.start <= first_dirty <= log.end:
        # Never compacted, or overtaken by retention, or ahead of a log that lost its end.
        first_dirty = log.start
    closed = segments[segment_at(segments, first_dirty) : -1]
    bound = min(last_stable_offset, segments[-1].base)
    if config.min_compaction_lag_ms > 0:
        newest = now_ms - config.min_compaction_lag_ms
        for segment in closed:
            if segment.max_timestamp > newest:
                bound = min(bound, segment.base)
                break
    upper_bound = segments[segment_at(segments, max(first_dirty, bound))].base
    return Dirty(
        log,
        first_dirty,
        upper_bound,
        clean_bytes=sum(segment.size for segment in segments if segment.base < first_dirty),
        dirty_bytes=sum(segment.size for segment in closed if segment.base < upper_bound),
        is_overdue=_is_overdue(closed, config.max_compaction_lag_ms, now_ms),
    )


def dirtiest(found: Iterable[Dirty]) -> Dirty | None:
    """The one to compact next, if any is worth it."""
    return max(
        (dirty for dirty in found if dirty.is_worth_it),
        key=lambda dirty: dirty.ratio,
        default=None,
    )


def _is_overdue(closed: Sequence[Segment], lag_ms: int, now_ms: int) -> bool:
    if lag_ms == _FOREVER_MS:
        return False
    times = (segment.first_timestamp for segment in closed)
    return any(time is not None and 0 < time < now_ms - lag_ms for time in times)
