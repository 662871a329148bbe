"""Questions about a log that look through its segments: by time, by transaction, by position."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from headwater import _core
from headwater.storage.segment import Segment, segment_at
from headwater.storage.txn_index import AbortedTransaction


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int  # -1 if not known


def first_not_before(
    segments: Sequence[Segment], timestamp: int, *, log_start: int
) -> TimestampedOffset | None:
    """The first record at or after the log's start whose timestamp is not below this one."""
    for segment in segments[segment_at(segments, log_start) :]:
        if segment.retention_timestamp < timestamp:
            continue
        from_offset = max(segment.time_index.lookup(timestamp), log_start)
        for position, size, _, _, newest in segment.places(segment.index.lookup(from_offset)):
            if newest < timestamp:
                continue
            data = segment.file.pread(size, position)
            for record in _core.decode(data, check_crc=False):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return TimestampedOffset(record.timestamp, record.offset, _epoch_in(data))
    return None


def with_max_timestamp(segments: Sequence[Segment]) -> TimestampedOffset | None:
    """The first record that has the largest timestamp of all."""
    segment = max(segments, key=attrgetter("max_timestamp"))
    largest = segment.max_timestamp
    if largest < 0:
        return None
    begin = segment.index.lookup(segment.offset_of_max_timestamp)
    for position, size, _, _, newest in segment.places(begin):
        if newest == largest:
            data = segment.file.pread(size, position)
            for record in _core.decode(data, check_crc=False):
                if record.timestamp == largest:
                    return TimestampedOffset(largest, record.offset, _epoch_in(data))
    return None


def aborted(
    segments: Sequence[Segment], from_offset: int, to_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that overlap [from, to)."""
    found: list[AbortedTransaction] = []
    for segment in segments[segment_at(segments, from_offset) :]:
        entries, complete = segment.txn_index.collect(from_offset, to_offset)
        found += entries
        if complete:
            break
    return found


def offset_bound(
    segments: Sequence[Segment], segment_base: int, position: int, *, log_end: int
) -> int:
    """An offset at or above all batches that begin before a position, found in the index alone."""
    place = segment_at(segments, segment_base)
    bound = segments[place].index.first_offset_from(position)
    if bound is not None:
        return bound
    return segments[place + 1].base if place + 1 < len(segments) else log_end


def _epoch_in(data: bytes) -> int:
    return int.from_bytes(data[12:16], "big", signed=True)
