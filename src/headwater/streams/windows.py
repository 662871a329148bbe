"""Windows over event time, and the durations that describe them.

    tumbling("5 minutes"), hopping("10 minutes", step="1 minute", grace="30 seconds")

A window closes when the watermark passes its end and its grace; what comes after that is dropped
and counted as late.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from headwater.streams.errors import TopologyError

K = TypeVar("K")
Duration = str | timedelta

_UNITS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "minute": 60_000,
    "min": 60_000,
    "hour": 3_600_000,
    "h": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_PART = re.compile(r"\s*(\d+)\s*([a-zA-Z]+)\s*,?")


def duration(given: Duration, what: str) -> timedelta:
    """Reads a duration such as "1 minute 30 seconds". TopologyError names `what` is given wrong."""
    if isinstance(given, timedelta):
        found = given
    else:
        total, at = 0, 0
        for part in _PART.finditer(given):
            unit = part[2].lower()
            ms = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
            if ms is None or part.start() != at:
                break
            total, at = total + int(part[1]) * ms, part.end()
        if not given.strip() or at != len(given):
            raise TopologyError(
                what, f"{given!r} is not a duration", then='write it as "5 minutes" or "10 seconds"'
            )
        found = timedelta(milliseconds=total)
    if found < timedelta():
        raise TopologyError(what, f"{given!r} is negative", then="give a positive duration")
    return found


def interval(given: timedelta) -> str:
    """Returns a duration as Spark reads it."""
    return f"{round(given.total_seconds() * 1000)} milliseconds"


def readable(given: timedelta) -> str:
    ms = round(given.total_seconds() * 1000)
    for name in ("day", "hour", "minute", "second"):
        if ms and ms % _UNITS[name] == 0:
            count = ms // _UNITS[name]
            return f"{count} {name}{'s' if count != 1 else ''}"
    return f"{ms} ms"


@dataclass(frozen=True, slots=True)
class Windowed(Generic[K]):
    """The key of a windowed table: the key itself and the window. Its end is exclusive, but for a
    session, which ends with its last record, and a sliding window, which has both of its ends."""

    key: K
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """kind: tumbling, hopping, sliding or session. `size` is the gap of a session."""

    kind: str
    size: timedelta
    step: timedelta
    grace: timedelta = timedelta()

    def __str__(self) -> str:
        text = f"{self.kind} {readable(self.size)}"
        if self.kind == "hopping":
            text += f" every {readable(self.step)}"
        return text + (f", grace {readable(self.grace)}" if self.grace else "")


def tumbling(size: Duration, *, grace: Duration = timedelta()) -> Window:
    """Windows of a fixed size, one after the other."""
    return _window("tumbling", size, size, grace)


def hopping(size: Duration, *, step: Duration, grace: Duration = timedelta()) -> Window:
    """Windows of a fixed size, a new one every `step`, so that they overlap."""
    return _window("hopping", size, step, grace)


def sliding(size: Duration, *, grace: Duration = timedelta()) -> Window:
    """A window for each set of records that lie within `size` of each other; both ends count."""
    return _window("sliding", size, size, grace)


def session(gap: Duration, *, grace: Duration = timedelta()) -> Window:
    """Windows of activity, which end where a key is silent for `gap`."""
    return _window("session", gap, gap, grace)


def _window(kind: str, size: Duration, step: Duration, grace: Duration) -> Window:
    window = Window(
        kind=kind,
        size=duration(size, f"{kind} window"),
        step=duration(step, f"{kind} window: step"),
        grace=duration(grace, f"{kind} window: grace"),
    )
    if not window.size or not window.step:
        raise TopologyError(f"{kind} window", "its size is zero", then="give a positive duration")
    if window.step > window.size:
        raise TopologyError(
            f"{kind} window",
            f"its step {readable(window.step)} is longer than its size {readable(window.size)}, "
            "so that records would be in no window",
            then="give a shorter step",
        )
    return window
