"""Times and durations as they are typed: ISO 8601, and what is quicker to type."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from datetime import datetime, timedelta

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SHORT = re.compile(
    r"(?:(?P<weeks>\d+)w)?(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?"
    r"(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+(?:\.\d+)?)s)?"
)
_SINCE_1970 = re.compile(r"@(\d+(?:\.\d+)?)")
# Whoever types a time since 1970 with so many digits has copied milliseconds; in seconds it would
# be the year 5138.
_MILLISECONDS_FROM = 100_000_000_000
_DAYS_BACK = {"today": 0, "yesterday": 1}


def read_time_ms(text: str) -> int:
    """Milliseconds since 1970: of an ISO time (local unless it has a zone), `@` and a time since
    1970, `now`, `today`, `yesterday`, or a duration, which is so long ago."""
    try:
        return _time_ms(text)
    except (ValueError, OverflowError, OSError):
        raise ArgumentTypeError(
            f"{text}: expected a time such as 2026-03-01T08:00, @1772352000, yesterday, "
            "or 90m for so long ago"
        ) from None


def _time_ms(text: str) -> int:
    if text == "now":
        return int(time.time() * 1000)
    if text in _DAYS_BACK:
        midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
        return _since_1970(midnight - timedelta(days=_DAYS_BACK[text]))
    since = _SINCE_1970.fullmatch(text)
    if since is not None:
        number = float(since[1])
        return int(number if number >= _MILLISECONDS_FROM else number * 1000)
    try:
        return _since_1970(datetime.fromisoformat(text))
    except ValueError:
        ago = _duration(text)
        if ago is None:
            raise
        return int((time.time() - ago.total_seconds()) * 1000)


def _since_1970(moment: datetime) -> int:
    return max(0, int(moment.timestamp() * 1000))  # no record is older


def read_duration(text: str) -> timedelta:
    found = _duration(text)
    if found is None:
        raise ArgumentTypeError(f"{text}: expected a duration such as P1D, PT90M, 1d or 1h30m")
    return found


def _duration(text: str) -> timedelta | None:
    for pattern in (_DURATION, _SHORT):
        found = pattern.fullmatch(text)
        parts = {unit: float(n) for unit, n in found.groupdict().items() if n} if found else {}
        if parts:
            return timedelta(**parts)
    return None
