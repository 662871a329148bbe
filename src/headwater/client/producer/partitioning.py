"""Where records without a key go: to one partition until it has had its share, then to another
(KIP-794). Records with a key go by murmur2 of the key, as Java's do; the core does that.

The next partition is drawn at random. With adaptive partitioning one whose queue is shorter is
drawn more often, so a slow broker gets less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random


def choose_partition(
    random: Random, *, queued: Sequence[int | None], partitions: int, adaptive: bool = True
) -> int:
    """The next partition. `queued` has for each partition how many batches wait for it, or None
    if it has no leader or its leader takes nothing; then any other is better."""
    assert partitions > 0
    candidates = [index for index, size in enumerate(queued) if size is not None]
    if not candidates:
        return random.randrange(partitions)
    if not adaptive:
        return candidates[random.randrange(len(candidates))]
    sizes = [queued[index] or 0 for index in candidates]
    longest = max(sizes)
    if longest == min(sizes):
        return candidates[random.randrange(len(candidates))]
    bounds = list(accumulate(longest + 1 - size for size in sizes))
    return candidates[bisect_right(bounds, random.randrange(bounds[-1]))]
