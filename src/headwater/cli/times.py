"""Times and durations as they are typed: ISO 8601."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime, timedelta

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def read_time_ms(text: str) -> int:
    """Milliseconds since 1970; local time unless it has a zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text}: expected a time such as 2026-03-01T08:00") from None
    return int(moment.timestamp() * 1000)


def read_duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    parts = {unit: float(n) for unit, n in found.groupdict().items() if n} if found else {}
    if not parts:
        raise ArgumentTypeError(f"{text}: expected a duration such as P1D, PT90M or P1DT12H")
    return timedelta(**parts)
