"""What a fetch gets of a log: a slice of one segment's file, found without reading its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.io import FileSlice
from headwater.storage import search
from headwater.storage.segment import segment_at

if TYPE_CHECKING:
    from headwater.storage.log import Log


class LogSlice(NamedTuple):
    """Bytes of a segment file for a reader. They begin with the batch that has the offset asked
    for and may end within a batch."""

    slice: FileSlice | None
    size: int
    segment_base: int
    position: int


def read(
    log: Log, offset: int, *, bytes_max: int, upto: int, at_least_one: bool = True
) -> LogSlice:
    """Bytes from the batch that has `offset` on, up to `bytes_max` or, if the first batch
    alone is larger and `at_least_one` is set, that batch. Never a batch that begins at or
    after `upto`."""
    if offset < log.start or offset > log.end:
        raise log.out_of_range(offset)
    if offset >= upto:
        return LogSlice(None, 0, log.segments[-1].base, 0)
    try:
        segments = log.segments
        place = len(segments) - 1
        if offset < segments[-1].base:
            place = segment_at(segments, offset)
        first_bytes = 0
        while True:
            segment = segments[place]
            position = -1
            if place == len(segments) - 1:
                position = log.recent.get(offset)
            if position < 0:
                found = segment.locate(offset)
                if found is not None:
                    position, first_bytes = found[0], found[1]
                    break
                place += 1  # a gap that compaction left at the end of a segment
                if place == len(segments):
                    return LogSlice(None, 0, segment.base, segment.size)
                continue
            break
        available = _bytes_below(log, upto, place) - position
        if available <= bytes_max:
            count = available
        else:
            count = bytes_max
            if not first_bytes:
                first_bytes = segment.batch_size(position)
            if first_bytes > count:
                count = min(first_bytes, available) if at_least_one else 0
        if count <= 0:
            return LogSlice(None, 0, segment.base, position)
        return LogSlice(FileSlice(segment.file, position, count), count, segment.base, position)
    except OSError as error:
        raise log.health.refusal(error) from error


def _bytes_below(log: Log, upto: int, place: int) -> int:
    """How many bytes of a segment belong to batches that begin below an offset."""
    segment = log.segments[place]
    if upto >= log.end:
        return segment.size
    if place + 1 < len(log.segments) and log.segments[place + 1].base <= upto:
        return segment.size
    known, base, position = log.last_bound
    if known == upto and base == segment.base:
        return position
    position = -1
    if place + 1 == len(log.segments):
        position = log.recent.get(upto)
    if position < 0:
        found = segment.locate(upto)
        position = found[0] if found else segment.size
    log.last_bound = (upto, segment.base, position)
    return position


def offset_bound(log: Log, read: LogSlice) -> int:
    """An offset at or above all that a slice may contain, found without reading it."""
    return search.offset_bound(
        log.segments, read.segment_base, read.position + read.size, log_end=log.end
    )
