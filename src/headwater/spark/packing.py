"""How ranges of offsets become tasks of Spark: pure, and the same for the same ranges.

A replayed batch must have the layout of the first try, or a sink that keeps a mark for each task
would lose rows or write them twice. So nothing but the ranges and the options counts here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise

from headwater.spark.offsets import Range

# A task costs Spark some 50 ms; reading this many records takes about that long.
_WORTH_A_TASK = 25_000
# From here on a task of its own for each partition costs nothing that could be noticed.
_WORTH_A_CORE = 250_000


def cores_here() -> int:
    """The cores of this host: on the driver a guess at those of the executors, which Spark tells
    nobody in Python. Large reads do not depend on it."""
    return os.cpu_count() or 1


def pack(
    ranges: Sequence[Range],
    *,
    cores: int,
    tasks: int | None = None,
    min_partitions: int | None = None,
    records_max: int | None = None,
) -> list[tuple[Range, ...]]:
    """Ranges as tasks, the same for the same ranges. `min_partitions` and `records_max` split
    ranges, as Spark's own source does; then each piece is a task. Otherwise small ranges share
    tasks: about as many tasks as `cores`, fewer for a little, more for a lot."""
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


def _packed(ranges: Sequence[Range], tasks: int) -> list[tuple[Range, ...]]:
    """The largest first, each to the task that has the least so far; the order never depends on
    anything but the ranges."""
    bins: list[list[Range]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for piece in sorted(ranges, key=lambda each: (-len(each), each)):
        slot = loads.index(min(loads))
        bins[slot].append(piece)
        loads[slot] += len(piece)
    return [tuple(sorted(each)) for each in bins if each]


def _split(
    ranges: Iterable[Range], min_partitions: int | None, records_max: int | None
) -> list[Range]:
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


def _cut(whole: Range, parts: int) -> list[Range]:
    parts = max(1, min(parts, len(whole)))
    edges = [whole.start + len(whole) * at // parts for at in range(parts + 1)]
    return [
        Range(whole.topic, whole.partition, start, end, whole.topic_id)
        for start, end in pairwise(edges)
    ]
