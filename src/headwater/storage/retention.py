"""Retention: the segments of a log that have outlived its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from headwater.config import TopicConfig
from headwater.io import Disk
from headwater.storage.failures import Health
from headwater.storage.segment import Segment
from headwater.storage.segments import Segments


class Reason(Enum):
    LOG_START = "log start"
    SIZE = "retention.bytes"
    TIME = "retention.ms"
    TRUNCATION = "truncation"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class RetiredSegment:
    """A segment that was taken out of its log; its files have the suffix `.deleted`. `delete`
    removes them, in a worker, after `file.delete.delay.ms`; readers keep what they have."""

    disk: Disk
    health: Health
    base: int
    size: int
    reason: Reason
    paths: tuple[str, ...]

    def delete(self) -> None:
        with self.health.errors():
            for path in self.paths:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.remove(path)


def expired(
    segments: Segments,
    config: TopicConfig,
    *,
    log_start: int,
    log_end: int,
    high_watermark: int,
    now_ms: int,
) -> Iterator[tuple[Segment, Reason]]:
    """Yields the segments to delete, the oldest first. None that reaches above the high watermark,
    and not the last one while it is empty."""
    surplus = segments.size - config.retention_bytes
    for place, segment in enumerate(segments):
        is_last = place + 1 == len(segments)
        upper = log_end if is_last else segments[place + 1].base
        if high_watermark < upper or (is_last and not segment.size):
            return
        if not is_last and segments[place + 1].base <= log_start:
            reason = Reason.LOG_START
        elif not config.delete:
            return
        elif config.retention_bytes >= 0 and surplus >= segment.size:
            reason = Reason.SIZE
        elif (
            config.retention_ms >= 0 and now_ms - segment.retention_timestamp > config.retention_ms
        ):
            reason = Reason.TIME
        else:
            return
        surplus -= segment.size
        yield segment, reason
