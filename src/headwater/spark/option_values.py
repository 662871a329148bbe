"""How the values of options are written: numbers, sizes, spans of time, times, offsets as JSON.

Spark hands over text. Each reader takes the option's name for its error and gives a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from headwater.model import TopicPartition
from headwater.spark.errors import OptionError

_SIZE = re.compile(r"(\d+)\s*(k|m|g|t)?(i?b)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SPAN = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_SPAN_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_OFF = ("none", "off", "unlimited")


def boolean(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise OptionError(f"{name}={text!r}: expected true or false")
    return lowered == "true"


def integer(name: str, text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"{name}={text!r}: expected a whole number") from None
    if value < at_least:
        raise OptionError(f"{name}={value}: expected {at_least} or more")
    return value


def fraction(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise OptionError(f"{name}={text!r}: expected a number from 0 to below 1")
    return value


def one_of(name: str, text: str, *allowed: str) -> str:
    for value in allowed:
        if text.strip().lower() == value.lower():
            return value
    raise OptionError(f"{name}={text!r}: expected {' or '.join(allowed)}")


def size(name: str, text: str) -> int | None:
    """Bytes: 1048576, 512m, 1g, 64MiB. None for no bound: none, off, unlimited or 0."""
    if text.strip().lower() in _OFF:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{name}={text!r}: expected a size such as 64m or 1g, or none")
    return int(found[1]) * _SIZE_UNITS[(found[2] or "").lower()] or None


def span_ms(name: str, text: str) -> int:
    """A span of time as Spark writes them: 15m, 30s, 100ms; a bare number is milliseconds."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"{name}={text!r}: expected a span of time such as 30s, 15m or 1h")
    return int(found[1]) * _SPAN_UNITS_US[(found[2] or "").lower()] // 1000


def time_ms(name: str, text: str, now_ms: int) -> int:
    """A time as people write it: ISO 8601 (UTC unless it says otherwise), or so long ago: -2h."""
    stripped = text.strip()
    if stripped.startswith("-"):
        return now_ms - span_ms(name, stripped[1:])
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise OptionError(
            f"{name}={text!r}: expected a time such as 2026-08-22T10:00:00Z, or -2h for two "
            "hours ago"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def names(name: str, text: str) -> tuple[str, ...]:
    """A list with commas between; each name once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise OptionError(f"{name}={text!r}: expected at least one name")
    return found


def partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """{"orders": [0, 1]}"""
    parsed = _json_object(name, text, '{"orders": [0, 1]}')
    found = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise OptionError(f"{name}={text!r}: the partitions of {topic} must be a list")
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise OptionError(f"{name}={text!r}: names no partition")
    return tuple(sorted(set(found)))


def by_partition(name: str, text: str) -> dict[TopicPartition, int]:
    """{"orders": {"0": 23, "1": -2}}"""
    example = '{"orders": {"0": 23, "1": 45}}'
    parsed = _json_object(name, text, example)
    found = {}
    for topic, numbers in parsed.items():
        if not isinstance(numbers, Mapping):
            raise OptionError(f"{name}={text!r}: expected JSON such as {example}")
        for partition, number in numbers.items():
            if not partition.isdigit() or isinstance(number, bool) or not isinstance(number, int):
                raise OptionError(
                    f"{name}={text!r}: {topic} has {partition!r}: {number!r}, expected JSON such "
                    f"as {example}"
                )
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise OptionError(f"{name}={text!r}: names no partition")
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"{name}={text!r}: expected JSON such as {example}")
    return parsed
