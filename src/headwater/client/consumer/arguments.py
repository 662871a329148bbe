"""Validates the arguments of a consumer's calls; errors quote the value.

Integers may be those of numpy, since offsets often come out of tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import index

from headwater.client.consumer.listener import RebalanceListener, is_listener
from headwater.client.errors import ClientError
from headwater.client.requests.offset_commit import OffsetAndMetadata
from headwater.client.timestamps import to_milliseconds
from headwater.model import NO_EPOCH, TopicPartition

OffsetsArgument = Mapping[TopicPartition, OffsetAndMetadata | int]

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_INVALID = -(2**63)  # below every lower bound


def integer(what: str, value: object, *, least: int = 0, most: int = _LONG_MAX) -> int:
    """Returns an integer that is within its bounds."""
    try:
        number = _INVALID if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = _INVALID
    if not least <= number <= most:
        end = "2**63 - 1" if most == _LONG_MAX else most
        raise ClientError(f"{what}{value!r}: expected an integer from {least} to {end}")
    return number


def timestamp(what: str, value: object) -> int:
    """Returns a time in milliseconds since 1970."""
    number = _INVALID
    if not isinstance(value, bool):
        with suppress(TypeError, OverflowError):
            number = to_milliseconds(value)
    if number < 0:
        raise ClientError(f"{what}{value!r}: expected a datetime, or milliseconds since 1970")
    return number


def milliseconds(timeout_ms: object) -> float:
    """Returns a timeout; one that is not positive means do not wait."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise ClientError(f"timeout_ms={timeout_ms!r}: expected milliseconds")
    return timeout_ms


def partition(each: object) -> TopicPartition:
    if type(each) is TopicPartition and type(each.partition) is int and each.partition >= 0:
        return each
    if not isinstance(each, tuple) or len(each) != 2 or not isinstance(each[0], str):
        raise ClientError(f"{each!r}: expected a partition as (topic, number), as in ('orders', 0)")
    return TopicPartition(each[0], integer(f"partition of {each[0]!r}: ", each[1], most=_INT_MAX))


def partitions(value: object) -> list[TopicPartition]:
    is_one = isinstance(value, tuple) and any(isinstance(each, str) for each in value)
    if is_one or isinstance(value, str) or not isinstance(value, Iterable):
        raise ClientError(f"{value!r}: expected a list of partitions, as in [('orders', 0)]")
    return [partition(each) for each in value]


def topics(value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ClientError(f"topics={value!r}: expected a list of names")
    names = list(value)
    for name in names:
        topic(name)
    return names


def topic(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ClientError(f"topic {name!r}: expected a name")
    return name


def pattern(value: object) -> re.Pattern[str] | None:
    """Returns a pattern that this client matches itself."""
    if value is None:
        return None
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        return value
    if not isinstance(value, str):
        raise ClientError(f"pattern={value!r}: expected a string, or a compiled pattern of one")
    try:
        return re.compile(value)
    except re.error as error:
        raise ClientError(f"pattern {value!r}: {error}") from None


def listener(value: RebalanceListener | None) -> RebalanceListener | None:
    """Refuses a listener that would never be called: its methods may be named as for another
    client."""
    if value is None or is_listener(value):
        return value
    raise ClientError(
        f"listener={value!r}: expected a RebalanceListener with on_assigned(partitions), "
        "on_revoked(partitions) or on_lost(partitions)"
    )


def offsets(value: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit."""
    if not isinstance(value, Mapping):
        raise ClientError(f"commit of {value!r}: expected offsets by partition, {{(topic, 0): 5}}")
    return {tp: _offset(tp, each) for tp, each in ((partition(k), v) for k, v in value.items())}


def _offset(tp: TopicPartition, each: object) -> OffsetAndMetadata:
    epoch, note = NO_EPOCH, ""
    offset = each
    if isinstance(each, tuple) and 1 <= len(each) <= 3:
        offset, epoch, note = OffsetAndMetadata(*each)
    what = f"commit of {tp}: "
    if note is not None and not isinstance(note, str):
        raise ClientError(f"{what}metadata {note!r}: expected a string")
    return OffsetAndMetadata(
        integer(f"{what}offset ", offset),
        integer(f"{what}leader epoch ", epoch, least=NO_EPOCH, most=_INT_MAX),
        note or "",
    )
