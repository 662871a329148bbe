"""Ranges of offsets: which a micro-batch reads, and how they become tasks of Spark.

Pure functions, with the same result for the same arguments: a replayed batch must have the layout
of the first try, or a sink that keeps a mark for each task would lose rows or write them twice. So
only the ranges and the options count here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headwater.model import ZERO_ID, TopicPartition, id_text
from headwater.spark.offsets import Offsets, SourceOffset, begin, recreated

# A task costs Spark some 50 ms; reading this many records takes about that long.
_WORTH_A_TASK = 25_000
# From this size on, the cost of a task for each partition is not noticeable.
_WORTH_A_CORE = 250_000


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition, `end` exclusive."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = ZERO_ID

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges to read, and a sentence for each way in which records may have been lost."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...] = ()


def plan(start: SourceOffset, end: SourceOffset, earliest: Offsets) -> Plan:
    """Plans the ranges between two offsets of a query. `earliest` has the log starts of new
    partitions, and of others if they are known."""
    losses = [
        f"topic {topic} was deleted and created again: its id was {id_text(start.ids[topic])} and "
        f"is {id_text(end.ids[topic])}; records of the old one that were not read are gone"
        for topic in recreated(start, end)
    ]
    losses += [
        f"{tp} is gone; it was read up to offset {start.offsets[tp]}"
        for tp in sorted(start.offsets)
        if tp not in end.offsets
    ]
    recreated_topics = set(recreated(start, end))
    ranges = []
    for tp, first in sorted(begin(start, end, earliest).items()):
        last = end.offsets[tp]
        if tp.topic not in recreated_topics:
            if tp not in start.offsets and first > 0:
                losses.append(f"{tp} is new and starts at offset {first} instead of 0")
            if last < first:
                losses.append(f"{tp} was read up to offset {first} and ends at {last} now")
            elif tp in start.offsets and first < min(earliest.get(tp, 0), last):
                losses.append(
                    f"{tp} was read up to offset {first}; the records up to "
                    f"{min(earliest[tp], last)} are gone, by retention or deletion"
                )
                first = min(earliest[tp], last)
        if last > first:
            ranges.append(
                OffsetRange(tp.topic, tp.partition, first, last, end.ids.get(tp.topic, ZERO_ID))
            )
    return Plan(tuple(ranges), tuple(losses))


# Tasks


def cores_here() -> int:
    """Returns the cores of this host: on the driver a guess at those of the executors, which Spark
    does not tell Python. The tasks of large reads do not depend on it."""
    return os.cpu_count() or 1


def pack(
    ranges: Sequence[OffsetRange],
    *,
    cores: int,
    tasks: int | None = None,
    min_partitions: int | None = None,
    records_max: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Groups ranges into tasks. `min_partitions` and `records_max` split ranges, as Spark's own
    source does; then each piece is a task. Otherwise small ranges share tasks: about as many tasks
    as `cores`, fewer for a small read, more for a large one."""
    if not ranges:
        return []
    if min_partitions is not None or records_max is not None:
        return [(piece,) for piece in _split(ranges, min_partitions, records_max)]
    total = sum(map(len, ranges))
    if tasks is None:
        tasks = max(
            min(cores, -(-total // _WORTH_A_TASK)),
            total // _WORTH_A_CORE,
        )
    return _packed(ranges, max(1, min(tasks, len(ranges))))


def _packed(ranges: Sequence[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    """Assigns ranges, the largest first, each to the task that has the least so far. The order
    depends on the ranges only."""
    bins: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for piece in sorted(ranges, key=lambda each: (-len(each), each)):
        slot = loads.index(min(loads))
        bins[slot].append(piece)
        loads[slot] += len(piece)
    return [tuple(sorted(each)) for each in bins if each]


def _split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, records_max: int | None
) -> list[OffsetRange]:
    pieces = list(ranges)
    if records_max is not None:
        pieces = [part for each in pieces for part in _cut(each, -(-len(each) // records_max))]
    if min_partitions is not None and len(pieces) < min_partitions:
        total = sum(map(len, pieces))
        # By size, as Spark's source does; then one more for the largest until there are enough.
        shares = [max(1, min_partitions * len(each) // total) for each in pieces]
        while sum(shares) < min_partitions:
            widest = max(range(len(pieces)), key=lambda at: (len(pieces[at]) / shares[at], -at))
            if len(pieces[widest]) <= shares[widest]:
                break
            shares[widest] += 1
        pieces = [
            part for each, share in zip(pieces, shares, strict=True) for part in _cut(each, share)
        ]
    return pieces


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = max(1, min(parts, len(whole)))
    edges = [whole.start + len(whole) * at // parts for at in range(parts + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, start, end, whole.topic_id)
        for start, end in pairwise(edges)
    ]
