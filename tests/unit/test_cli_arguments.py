"""Times and durations as they are typed."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from datetime import datetime, timedelta

import pytest

from headwater.cli.arguments import read_duration, read_time_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", timedelta(days=1)),
        ("PT90M", timedelta(minutes=90)),
        ("P1W", timedelta(weeks=1)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("90m", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("0.5s", timedelta(seconds=0.5)),
    ],
)
def test_a_duration_is_iso_8601_or_shorter(text: str, expected: timedelta) -> None:
    assert read_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1D", "P-1D", "PT1X", "1 day", "30m1h", "h", "-1h"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a duration such as"):
        read_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01.500+01:00", 1500),
        ("1970-01-02 00:00Z", 86_400_000),
        ("@1772352000", 1_772_352_000_000),
        ("@1772352000.5", 1_772_352_000_500),
        ("@1772352000123", 1_772_352_000_123),
        ("0800-01-01T00:00Z", 0),
    ],
)
def test_a_time_is_that_moment(text: str, expected: int) -> None:
    assert read_time_ms(text) == expected


def test_days_begin_at_midnight_here() -> None:
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    assert read_time_ms("today") == int(midnight.timestamp() * 1000)
    assert read_time_ms("yesterday") == int((midnight - timedelta(days=1)).timestamp() * 1000)
    assert read_time_ms(midnight.date().isoformat()) == read_time_ms("today")


def test_a_duration_means_that_long_ago() -> None:
    before = time.time()
    found = [read_time_ms(text) for text in ("now", "0s", "1h", "PT1H")]
    after = time.time()
    for each, ago in zip(found, (0, 0, 3600, 3600), strict=True):
        assert int((before - ago) * 1000) <= each <= int((after - ago) * 1000)


@pytest.mark.parametrize("text", ["", "someday", "2026-13-01", "@", "@-5", "25:00", "99999999999d"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a time such as"):
        read_time_ms(text)
