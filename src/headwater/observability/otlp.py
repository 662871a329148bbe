"""Metrics as OpenTelemetry takes them: bodies of `POST /v1/metrics`, in JSON.

All counts are cumulative: the next body makes up for one that gets lost. What is large is split
into several bodies, and read in small steps like the text for Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from json import dumps
from math import isfinite, isnan

from headwater.observability.registry import (
    Distribution,
    Family,
    Item,
    Quantiles,
    Registry,
    Sample,
)

STEPS = 200  # items that are read before others have a turn
POINTS_MAX = 2000  # of one body
_CUMULATIVE = '"aggregationTemporality":2'
_BODIES = {
    "counter": f'"sum":{{{_CUMULATIVE},"isMonotonic":true,"dataPoints":[%s]}}',
    "gauge": '"gauge":{"dataPoints":[%s]}',
    "histogram": f'"histogram":{{{_CUMULATIVE},"dataPoints":[%s]}}',
    "summary": '"summary":{"dataPoints":[%s]}',
}


class Times:
    """The start of counting and the time of a reading, in nanoseconds since 1970."""

    __slots__ = ("text",)

    def __init__(self, *, start_ns: int, now_ns: int) -> None:
        self.text = f'"startTimeUnixNano":"{start_ns}","timeUnixNano":"{now_ns}"'


def bodies(
    registry: Registry,
    resource: Mapping[str, str],
    times: Times,
    *,
    points_max: int = POINTS_MAX,
    steps: int = STEPS,
) -> Iterator[bytes | None]:
    """Yields bodies to post, and None where others should have a turn."""
    batch = _Batch(resource)
    done = 0
    for item in registry.collect():
        done += 1
        if isinstance(item, Family):
            batch.begin(item)
        elif item is not None:
            batch.add(_point(item, times.text))
            if batch.points >= points_max:
                yield batch.take()
                done = 0
        if done >= steps:
            yield None
            done = 0
    if batch.points:
        yield batch.take()


class _Batch:
    """The metrics of one body."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._head = (
            '{"resourceMetrics":[{"resource":{"attributes":['
            + _attributes(resource)
            + ']},"scopeMetrics":[{"scope":{"name":"headwater"},"metrics":['
        )
        self._metrics: list[str] = []
        self._family: Family | None = None
        self._points: list[str] = []
        self.points = 0

    def begin(self, family: Family) -> None:
        self._end()
        self._family = family

    def add(self, point: str) -> None:
        self._points.append(point)
        self.points += 1

    def _end(self) -> None:
        family = self._family
        if family is None or not self._points:
            return
        self._metrics.append(
            f'{{"name":{dumps(family.name)},"description":{dumps(family.meaning)},'
            + _BODIES[family.kind] % ",".join(self._points)
            + "}"
        )
        self._points = []

    def take(self) -> bytes:
        """Returns the body, and begins the next one within the same family."""
        self._end()
        body = f"{self._head}{','.join(self._metrics)}]}}]}}]}}"
        self._metrics = []
        self.points = 0
        return body.encode()


def _attributes(values: Mapping[str, str | int]) -> str:
    return ",".join(
        [f'{{"key":"{name}","value":{{"stringValue":{_text(v)}}}}}' for name, v in values.items()]
    )


def _text(value: str | int) -> str:
    return f'"{value}"' if isinstance(value, int) else dumps(value)


def _point(item: Item, times: str) -> str:
    assert isinstance(item, Sample | Distribution | Quantiles)
    head = f'{{"attributes":[{_attributes(item.labels.values)}],{times}'
    if isinstance(item, Sample):
        value = item.value
        shown = f'"asInt":"{value}"' if isinstance(value, int) else f'"asDouble":{_number(value)}'
        return f"{head},{shown}}}"
    if isinstance(item, Distribution):
        histogram = item.histogram
        counts = ",".join([f'"{count}"' for count in histogram.counts])
        bounds = ",".join(map(repr, histogram.bounds))
        return (
            f'{head},"count":"{histogram.count}","sum":{_number(histogram.total)},'
            f'"bucketCounts":[{counts}],"explicitBounds":[{bounds}]}}'
        )
    quantiles = ",".join(
        [f'{{"quantile":{share},"value":{_number(value)}}}' for share, value in item.quantiles]
    )
    total = "" if item.total is None else f'"sum":{_number(item.total)},'
    return f'{head},"count":"{item.count}",{total}"quantileValues":[{quantiles}]}}'


def _number(value: float) -> str:
    if isfinite(value):
        return repr(float(value))
    return '"NaN"' if isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')
