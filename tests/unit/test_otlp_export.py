"""Metrics for an OpenTelemetry collector: their JSON, and the settings of the export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.config import ConfigError, node_config
from headwater.config.otlp import OtlpSettings
from headwater.observability.histogram import Histogram
from headwater.observability.otlp import Times, bodies
from headwater.observability.registry import (
    NO_LABELS,
    Distribution,
    Family,
    Item,
    Labels,
    Quantiles,
    Registry,
    Sample,
    one,
)

TIMES = Times(start_ns=1, now_ns=2)


def posted(*items: Item, **bounds: int) -> list[Any]:
    registry = Registry()
    registry.register(lambda: iter(items))
    found = bodies(registry, {"service.name": 'head"water'}, TIMES, **bounds)
    return [json.loads(body) for body in found if body is not None]


def metrics_of(body: Any) -> list[Any]:
    (resource,) = body["resourceMetrics"]
    assert resource["resource"]["attributes"] == [
        {"key": "service.name", "value": {"stringValue": 'head"water'}}
    ]
    (scope,) = resource["scopeMetrics"]
    found: list[Any] = scope["metrics"]
    return found


def test_each_kind_of_family_is_written_as_a_collector_reads_it() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.1, 0.7, 9.0):
        histogram.note(value)
    (body,) = posted(
        *one("up", "gauge", 'Says "up".', 1.5),
        Family("served_total", "counter", "Served."),
        Sample(Labels(topic="a\n\x00é", partition=3), 7),
        Family("seconds", "histogram", "Seconds."),
        Distribution(NO_LABELS, histogram),
        Family("ms", "summary", "Ms."),
        Quantiles(NO_LABELS, ((0.5, float("inf")),), 2, None),
    )
    times = {"startTimeUnixNano": "1", "timeUnixNano": "2"}
    gauge, counter, distribution, summary = metrics_of(body)
    assert gauge["gauge"]["dataPoints"] == [{"attributes": [], **times, "asDouble": 1.5}]
    assert (gauge["name"], gauge["description"]) == ("up", 'Says "up".')
    assert counter["sum"]["aggregationTemporality"] == 2
    assert counter["sum"]["isMonotonic"] is True
    (point,) = counter["sum"]["dataPoints"]
    assert point["asInt"] == "7"
    assert point["attributes"] == [
        {"key": "topic", "value": {"stringValue": "a\n\x00é"}},
        {"key": "partition", "value": {"stringValue": "3"}},
    ]
    (point,) = distribution["histogram"]["dataPoints"]
    assert (point["count"], point["bucketCounts"]) == ("3", ["1", "1", "1"])
    assert (point["explicitBounds"], point["sum"]) == ([0.5, 1.0], pytest.approx(9.8))
    (point,) = summary["summary"]["dataPoints"]
    assert point["quantileValues"] == [{"quantile": 0.5, "value": "Infinity"}]
    assert "sum" not in point


def test_what_is_large_goes_in_several_bodies_and_in_small_steps() -> None:
    steps = 0

    def collect() -> Iterator[Item]:
        nonlocal steps
        yield Family("empty", "gauge", "Has no samples.")
        yield Family("a", "gauge", "A.")
        for at in range(1000):
            steps += 1
            yield Sample(Labels(at=at), at)

    registry = Registry()
    registry.register(collect)
    before, found = 0, []
    for body in bodies(registry, {}, TIMES, points_max=300, steps=50):
        assert steps - before <= 50
        before = steps
        if body is not None:
            found.append(json.loads(body)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"])
    assert [len(metric["gauge"]["dataPoints"]) for (metric,) in found] == [300, 300, 300, 100]


def test_the_endpoint_and_its_headers_are_checked() -> None:
    assert node_config().otlp is None
    at = "headwater.otlp.endpoint"
    assert node_config({at: "http://[::1]:4318/"}).otlp == OtlpSettings(
        "http://[::1]:4318/v1/metrics", {}, 60.0
    )
    config = node_config(
        {
            at: "https://otel.example/otlp/v1/metrics",
            "headwater.otlp.headers": "authorization=Bearer a=b, x=1",
            "headwater.otlp.interval.ms": "1500",
        }
    )
    assert config.otlp == OtlpSettings(
        "https://otel.example/otlp/v1/metrics", {"authorization": "Bearer a=b", "x": "1"}, 1.5
    )
    for text in ("x", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x/?a=b"):
        with pytest.raises(ConfigError, match="expected a URL"):
            node_config({at: text})


def test_headers_are_secret() -> None:
    secret = {"headwater.otlp.headers": "authorization=s3cret"}
    node_config(secret | {"headwater.otlp.endpoint": "http://127.0.0.1:4318"})
    with pytest.raises(ConfigError, match="expected https") as refusal:
        node_config(secret | {"headwater.otlp.endpoint": "http://otel.example:4318"})
    assert "s3cret" not in str(refusal.value)
    with pytest.raises(ConfigError, match="expected NAME=VALUE") as refusal:
        node_config(
            {
                "headwater.otlp.endpoint": "https://otel.example",
                "headwater.otlp.headers": "s3 cret=x",
            }
        )
    assert "s3 cret" not in str(refusal.value)
