"""Counts of values by size: cheap to note, and enough to tell quantiles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# Upper bounds in seconds, each about twice the one before.
LATENCY_SECONDS = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)

_WINDOW_SECONDS = 60.0
SHARES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)  # the quantiles that Kafka reports


class Histogram:
    """Counts of values in buckets that end (inclusively) at `bounds`; the last has no end."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Returns each upper bound with the number of values up to it; the last is infinity."""
        found: list[tuple[float, int]] = []
        upto = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            upto += count
            found.append((bound, upto))
        return found


class RecentQuantiles:
    """Quantiles of what a histogram has counted in the last one or two minutes, as far as its
    buckets tell. Costs nothing between two readings."""

    __slots__ = ("_before", "_since", "_turned")

    def __init__(self) -> None:
        self._before: list[int] = []  # the counts where the window begins
        self._turned: list[int] = []  # where the next one will begin
        self._since: float | None = None

    def read(
        self, histogram: Histogram, quantiles: Sequence[float], now: float
    ) -> tuple[tuple[float, float], ...]:
        """Returns each quantile with its value; 0 if nothing was counted lately."""
        counts = histogram.counts
        if self._since is None:
            self._before = self._turned = [0] * len(counts)
            self._since = now
        elif now - self._since >= _WINDOW_SECONDS:
            self._before, self._turned = self._turned, list(counts)
            self._since = now
        recent = [count - old for count, old in zip(counts, self._before, strict=True)]
        return tuple((each, quantile(histogram.bounds, recent, each)) for each in quantiles)


def quantile(bounds: Sequence[float], counts: Sequence[int], wanted: float) -> float:
    """Returns about where a share of all values lies: between the ends of its bucket in proportion,
    as Prometheus does."""
    rank = wanted * sum(counts)
    if not rank:
        return 0.0
    low = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if rank <= count:
            return low + (bound - low) * rank / count
        rank -= count
        low = bound
    return low  # the last bucket has no end
