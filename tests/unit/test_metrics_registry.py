"""Families and samples, and the text that is scraped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.observability.exposition import OPENMETRICS, PROMETHEUS, accepted, render
from headwater.observability.histogram import Histogram, RecentQuantiles, quantile
from headwater.observability.registry import (
    NO_LABELS,
    Distribution,
    Family,
    Item,
    Labels,
    Quantiles,
    Registry,
    Sample,
    metric_name,
    one,
)
from tests.support.exposition import parse


def _text(*items: Item, openmetrics: bool = False) -> str:
    registry = Registry()
    registry.register(lambda: iter(items))
    return "".join(render(registry, openmetrics=openmetrics))


def test_each_kind_of_family_is_rendered_as_both_formats_want_it() -> None:
    histogram = Histogram((0.001, 0.01))
    for seconds in (0.0005, 0.001, 0.5):
        histogram.note(seconds)
    items: tuple[Item, ...] = (
        *one("up", "gauge", "Whether it runs.", 1),
        Family("served_total", "counter", "Requests."),
        Sample(Labels(api="Fetch"), 3),
        Family("seconds", "histogram", "Times."),
        Distribution(Labels(api="Fetch"), histogram),
        Family("ms", "summary", "Times."),
        Quantiles(NO_LABELS, ((0.5, 1.5),), 4, 6.0),
    )
    families = parse(_text(*items))
    assert families["up"].value() == 1
    assert families["served_total"].value(api="Fetch") == 3
    assert families["seconds"].samples == {
        ("seconds_bucket", (("api", "Fetch"), ("le", "0.001"))): 2,
        ("seconds_bucket", (("api", "Fetch"), ("le", "0.01"))): 2,
        ("seconds_bucket", (("api", "Fetch"), ("le", "+Inf"))): 3,
        ("seconds_sum", (("api", "Fetch"),)): 0.5015,
        ("seconds_count", (("api", "Fetch"),)): 3,
    }
    assert families["ms"].samples == {
        ("ms", (("quantile", "0.5"),)): 1.5,
        ("ms_sum", ()): 6.0,
        ("ms_count", ()): 4.0,
    }
    assert parse(_text(*items, openmetrics=True), openmetrics=True) == families


def test_what_others_have_named_is_escaped() -> None:
    text = _text(Family("a", "gauge", 'of "x"\\ and\nmore'), Sample(Labels(topic='a"b\\c\nd'), 1.0))
    assert text == (
        '# HELP a of "x"\\\\ and\\nmore\n# TYPE a gauge\na{topic="a\\"b\\\\c\\nd"} 1.0\n'
    )
    parse(text)


def test_numbers_that_are_none_are_written_as_prometheus_reads_them() -> None:
    values = (float("inf"), float("-inf"), float("nan"), 1e300, 7)
    samples = [Sample(Labels(n=at), value) for at, value in enumerate(values)]
    lines = _text(Family("a", "gauge", "A."), *samples).splitlines()[2:]
    assert [line.rpartition(" ")[2] for line in lines] == ["+Inf", "-Inf", "NaN", "1e+300", "7"]


def test_a_family_of_two_collectors_is_told_of_once() -> None:
    registry = Registry()
    registry.register(lambda: iter(one("a", "gauge", "First.", 1)))
    end = registry.register(
        lambda: iter((*one("a", "gauge", "Second.", 2), *one("b", "gauge", "B.", 3)))
    )
    families = parse("".join(render(registry)))
    assert (families["a"].meaning, families["b"].value()) == ("First.", 3)
    end()
    end()
    assert list(parse("".join(render(registry)))) == ["a"]


def test_a_part_of_the_text_takes_a_bounded_number_of_steps() -> None:
    steps = 0

    def collect() -> Iterator[Item]:
        nonlocal steps
        yield Family("a_total", "counter", "A.")
        for at in range(1000):
            steps += 1
            yield Sample(Labels(at=at), at)
        for _ in range(1000):  # work without samples
            steps += 1
            yield None

    registry = Registry()
    registry.register(collect)
    before, parts = 0, []
    for part in render(registry, steps=50):
        assert steps - before <= 50
        before = steps
        parts.append(part)
    assert steps == 2000
    assert len(parts) > 40
    assert len(parse("".join(parts))["a_total"].samples) == 1000


def test_the_lines_of_histograms_count_as_steps() -> None:
    registry = Registry()
    items = [Distribution(Labels(at=at), Histogram()) for at in range(100)]
    registry.register(lambda: iter((Family("a", "histogram", "A."), *items)))
    assert max(part.count("\n") for part in render(registry, steps=50)) < 80


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", PROMETHEUS),
        ("*/*", PROMETHEUS),
        ("text/plain", PROMETHEUS),
        ("application/openmetrics-text", OPENMETRICS),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
            OPENMETRICS,
        ),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", PROMETHEUS),
        ("application/openmetrics-text;q=0", PROMETHEUS),
        ("application/openmetrics-text;q=x", PROMETHEUS),
        (";;,,q=1", PROMETHEUS),
    ],
)
def test_the_format_is_negotiated(accept: str, expected: str) -> None:
    assert accepted(accept) == expected


def test_a_name_from_elsewhere_becomes_a_name() -> None:
    names = [metric_name(text) for text in ("org.Apache.kafka-x", "9lives", "", "Ümlaut\n")]
    assert names == ["org_apache_kafka_x", "_9lives", "_", "mlaut"]


def test_quantiles_lie_within_their_buckets() -> None:
    assert quantile((1.0, 2.0), (0, 10, 0), 0.5) == 1.5
    assert quantile((1.0, 2.0), (0, 0, 10), 0.5) == 2.0
    assert quantile((1.0, 2.0), (0, 0, 0), 0.5) == 0.0


def test_recent_quantiles_forget_what_was_long_ago() -> None:
    histogram = Histogram((1.0, 2.0))
    recent = RecentQuantiles()
    for _ in range(10):
        histogram.note(0.5)
    assert recent.read(histogram, (0.5,), now=0.0) == ((0.5, 0.5),)
    assert recent.read(histogram, (0.5,), now=61.0) == ((0.5, 0.5),)  # still within the window
    for _ in range(10):
        histogram.note(1.5)
    assert recent.read(histogram, (0.5,), now=122.0) == ((0.5, 1.5),)
    assert recent.read(histogram, (0.5,), now=400.0) == ((0.5, 0.0),)
