"""Values of arguments as they are typed: numbers, times, durations, pairs and partitions.

A value that cannot be read is refused with what was expected.
"""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from collections.abc import Iterable
from datetime import datetime, timedelta

from headwater.cli.errors import USAGE, CommandError

_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SHORT = re.compile(
    r"(?:(?P<weeks>\d+)w)?(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?"
    r"(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+(?:\.\d+)?)s)?"
)
_SINCE_1970 = re.compile(r"@(\d+(?:\.\d+)?)")
# A time since 1970 with that many digits was copied in milliseconds; in seconds it would be the
# year 5138.
_MILLISECONDS_FROM = 100_000_000_000
_DAYS_BACK = {"today": 0, "yesterday": 1}


# Numbers


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text}: expected a whole number") from None


def from_zero(text: str) -> int:
    return _at_least(0, text)


def from_one(text: str) -> int:
    return _at_least(1, text)


def seconds(text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 <= given < float("inf"):  # nan is neither
        raise ArgumentTypeError(f"{text}: expected seconds, such as 5 or 0.5")
    return given


def _at_least(least: int, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise ArgumentTypeError(f"{text}: expected a whole number, at least {least}")
    return int(text)


# Times and durations


def read_time_ms(text: str) -> int:
    """Reads a time as milliseconds since 1970: an ISO time (local unless it has a zone), `@` and a
    time since 1970, `now`, `today`, `yesterday`, or a duration, which means that long ago."""
    try:
        return _time_ms(text)
    except (ValueError, OverflowError, OSError):
        raise ArgumentTypeError(
            f"{text}: expected a time such as 2026-03-01T08:00, @1772352000, yesterday, "
            "or 90m for that long ago"
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


# Pairs and partitions


def read_pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """Reads arguments of the form KEY=VALUE."""
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option} {item}".strip() + ": expected KEY=VALUE", code=USAGE)
        pairs[key.strip()] = value.strip()
    return pairs


def read_partitions(text: str, option: str = "TOPIC") -> tuple[str, tuple[int, ...] | None]:
    """Reads TOPIC or TOPIC:0,1,2; None stands for every partition."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        return topic, tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise CommandError(f"{option} {text}: expected TOPIC or TOPIC:0,1,2", code=USAGE) from None
