"""Requests by API: how many, how long, which errors, how many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.broker.request_meters import RequestMeters
from headwater.errors import ErrorCode
from headwater.observability.histogram import SHARES, Histogram, RecentQuantiles
from headwater.observability.registry import (
    Distribution,
    Family,
    Item,
    Labels,
    Quantiles,
    Sample,
)
from headwater.observability.requests import ApiMeter

_KAFKAS_STAGES = {
    "total": ("totaltimems", "from the start of the handler to the response"),
    "queue": ("requestqueuetimems", "from the arrival of the request to its handler"),
    "local": ("localtimems", "in the handler"),
    "remote": ("remotetimems", "waiting: for records, replicas, other members or a coordinator"),
    "throttle": ("throttletimems", "for which the client was throttled after the response"),
}
_PREFIX = "kafka_network_requestmetrics"


class RequestCollector:
    def __init__(self, meters: RequestMeters, now: Callable[[], float]) -> None:
        self._meters = meters
        self._now = now
        # By API and stage; the histograms are the sums of the last scrape.
        self._recent: dict[tuple[str, str], RecentQuantiles] = {}

    def collect(self) -> Iterator[Item]:
        meters = list(self._meters.all())
        yield Family(f"{_PREFIX}_requests_total", "counter", "Requests, by API and version.")
        for meter in meters:
            for version, count in tuple(meter.versions.items()):
                yield Sample(Labels(request=meter.name, version=version), count)
        yield Family(
            f"{_PREFIX}_errors_total",
            "counter",
            "Error codes in responses, by API and error; NONE counts responses without one.",
        )
        for meter in meters:
            yield from _errors(meter)
        yield Family(f"{_PREFIX}_requestbytes_total", "counter", "Bytes of requests, by API.")
        for meter in meters:
            yield Sample(Labels(request=meter.name), meter.request_bytes)
        yield Family(f"{_PREFIX}_responsebytes_total", "counter", "Bytes of responses, by API.")
        for meter in meters:
            yield Sample(Labels(request=meter.name), meter.response_bytes)
        yield from self._times(meters)

    def _times(self, meters: list[ApiMeter]) -> Iterator[Item]:
        stages: dict[str, dict[str, Histogram]] = {}
        for meter in meters:
            stages[meter.name] = meter.stages()
            yield None
        now = self._now()
        for stage, (name, what) in _KAFKAS_STAGES.items():
            yield Family(
                f"{_PREFIX}_{name}",
                "summary",
                f"Milliseconds {what}; quantiles of the last one to two minutes.",
            )
            for api, histograms in stages.items():
                yield self._quantiles(api, stage, histograms[stage], now)
        yield Family(
            "headwater_request_seconds",
            "histogram",
            "Time of requests, by API and stage: before its handler (queue), in it (local), after "
            "it (remote), the last two together (total); and the throttle time after (throttle).",
        )
        for api, histograms in stages.items():
            for stage, histogram in histograms.items():
                yield Distribution(Labels(request=api, stage=stage), histogram)

    def _quantiles(self, api: str, stage: str, histogram: Histogram, now: float) -> Quantiles:
        recent = self._recent.get((api, stage))
        if recent is None:
            recent = self._recent[api, stage] = RecentQuantiles()
        found = recent.read(histogram, SHARES, now)
        in_ms = tuple((share, 1000 * seconds) for share, seconds in found)
        return Quantiles(Labels(request=api), in_ms, histogram.count, 1000 * histogram.total)


def _errors(meter: ApiMeter) -> Iterator[Item]:
    for code, count in tuple(meter.errors.items()):
        yield Sample(Labels(request=meter.name, error=_name_of(code)), count)
    yield Sample(Labels(request=meter.name, error="NONE"), meter.count - meter.failures)


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
