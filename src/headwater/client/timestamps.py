"""Timestamps as users write them: a datetime, or milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import index

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_INT64_MAX = 2**63 - 1

Timestamp = datetime | int


def to_milliseconds(given: object) -> int:
    """Returns milliseconds since 1970. A datetime without a time zone is local time, as in Python's
    `datetime.timestamp`; that one is not used, since a float rounds."""
    if isinstance(given, datetime):
        aware = given if given.tzinfo is not None else given.astimezone()
        return (aware - _EPOCH) // _MILLISECOND
    try:
        number = index(given)  # type: ignore[arg-type]  # raises TypeError for anything else
    except TypeError:
        raise TypeError(
            f"timestamp is a datetime or milliseconds since 1970, not {given!r}"
        ) from None
    if abs(number) > _INT64_MAX:
        raise OverflowError(f"timestamp {number} does not fit into 64 bits")
    return number
