"""Counts, durations and error codes of requests by API.

One `ApiMeter` for each API of a node. A request costs one or two searches in a short tuple and a
few additions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from headwater.observability.histogram import LATENCY_SECONDS, Histogram

_BOUNDS = LATENCY_SECONDS
_VERSIONS_MAX = 64
NOT_QUEUED_SECONDS = _BOUNDS[0]


class ApiMeter:
    """Requests of one API."""

    __slots__ = (
        "_at_once",
        "_local",
        "_queue",
        "_remote",
        "_throttle",
        "_total",
        "_versions",
        "errors",
        "failures",
        "name",
        "request_bytes",
        "response_bytes",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._versions = [0] * _VERSIONS_MAX
        self.errors: dict[int, int] = {}  # by code; an answer may have many
        self.failures = 0  # answers with an error
        self.request_bytes = 0
        self.response_bytes = 0
        # Most requests are answered by their handler at once: their local time is their total time,
        # and they need no more than one search.
        self._at_once = Histogram()
        self._queue = Histogram()
        self._local = Histogram()
        self._remote = Histogram()
        self._throttle = Histogram()
        self._total = Histogram()

    def queued(self, seconds: float) -> None:
        """Counts the time for which a request waited before its handler began. To be called only if
        that is more than `NOT_QUEUED_SECONDS`, as it is for few."""
        self._queue.note(seconds)

    def throttled(self, seconds: float) -> None:
        """Counts for how long a client has to wait after the answer. To be called only if it has
        to, as few have."""
        self._throttle.note(seconds)

    def answered(self, version: int, sent_bytes: int, answer_bytes: int, seconds: float) -> None:
        """Counts a request that was answered at once."""
        self._versions[version] += 1
        self.request_bytes += sent_bytes
        self.response_bytes += answer_bytes
        histogram = self._at_once
        histogram.counts[bisect_left(_BOUNDS, seconds)] += 1
        histogram.total += seconds

    def answered_later(
        self, version: int, sent_bytes: int, answer_bytes: int, *, local: float, total: float
    ) -> None:
        """Counts a request whose handler took `local` seconds, and whose answer had to wait."""
        self._versions[version] += 1
        self.request_bytes += sent_bytes
        self.response_bytes += answer_bytes
        self._local.note(local)
        self._remote.note(total - local)
        self._total.note(total)

    def failed(self, codes: Iterable[int]) -> None:
        """Counts the errors of an answer that has any."""
        self.failures += 1
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1

    @property
    def count(self) -> int:
        return sum(self._versions)

    @property
    def versions(self) -> dict[int, int]:
        """Returns the number of answered requests of each version that came."""
        return {version: count for version, count in enumerate(self._versions) if count}

    def stages(self) -> dict[str, Histogram]:
        """Returns the times before the handler, in it, and of waiting after it, the time from the
        handler's beginning to the answer, and for how long clients had to wait after that."""
        at_once = self._at_once
        remote = Histogram()
        remote.counts[0] = at_once.count
        not_queued = Histogram()
        not_queued.counts[0] = self.count - self._queue.count
        not_throttled = Histogram()
        not_throttled.counts[0] = self.count - self._throttle.count
        return {
            "queue": sum_of(not_queued, self._queue),
            "local": sum_of(at_once, self._local),
            "remote": sum_of(remote, self._remote),
            "total": sum_of(at_once, self._total),
            "throttle": sum_of(not_throttled, self._throttle),
        }


def sum_of(*histograms: Histogram) -> Histogram:
    result = Histogram(histograms[0].bounds)
    for each in histograms:
        result.counts = [a + b for a, b in zip(result.counts, each.counts, strict=True)]
        result.total += each.total
    return result


def sum_of_meters(name: str, *meters: ApiMeter) -> ApiMeter:
    """Returns what several meters have counted together."""
    result = ApiMeter(name)
    for meter in meters:
        both = zip(result._versions, meter._versions, strict=True)
        result._versions = [a + b for a, b in both]
        for code, count in meter.errors.items():
            result.errors[code] = result.errors.get(code, 0) + count
        result.failures += meter.failures
        result.request_bytes += meter.request_bytes
        result.response_bytes += meter.response_bytes
        result._at_once = sum_of(result._at_once, meter._at_once)
        result._queue = sum_of(result._queue, meter._queue)
        result._local = sum_of(result._local, meter._local)
        result._remote = sum_of(result._remote, meter._remote)
        result._throttle = sum_of(result._throttle, meter._throttle)
        result._total = sum_of(result._total, meter._total)
    return result
