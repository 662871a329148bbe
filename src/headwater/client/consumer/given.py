"""What users hand to a consumer: taken if it can be meant so, otherwise refused with its value.

Whole numbers may be those of numpy, as they come out of tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import index

from headwater.client.consumer.listener import RebalanceListener, is_listener
from headwater.client.errors import ClientError
from headwater.client.requests.offset_commit import OffsetAndMetadata
from headwater.model import NO_EPOCH, TopicPartition

GivenOffsets = Mapping[TopicPartition, OffsetAndMetadata | int]

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_NONE = -(2**63)  # in nobody's bounds


def whole(what: str, value: object, *, least: int = 0, most: int = _LONG_MAX) -> int:
    """A whole number in its bounds."""
    try:
        number = _NONE if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = _NONE
    if not least <= number <= most:
        end = "2**63 - 1" if most == _LONG_MAX else most
        raise ClientError(f"{what}{value!r}: expected a whole number from {least} to {end}")
    return number


def milliseconds(timeout_ms: object) -> float:
    """How long to wait; a time that is over already is none."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise ClientError(f"timeout_ms={timeout_ms!r}: expected milliseconds")
    return timeout_ms


def partition(each: object) -> TopicPartition:
    if type(each) is TopicPartition and type(each.partition) is int and each.partition >= 0:
        return each
    if not isinstance(each, tuple) or len(each) != 2 or not isinstance(each[0], str):
        raise ClientError(f"{each!r}: expected a partition as (topic, number), as in ('orders', 0)")
    return TopicPartition(each[0], whole(f"partition of {each[0]!r}: ", each[1], most=_INT_MAX))


def partitions(given: object) -> list[TopicPartition]:
    one = isinstance(given, tuple) and any(isinstance(each, str) for each in given)
    if one or isinstance(given, str) or not isinstance(given, Iterable):
        raise ClientError(f"{given!r}: expected a list of partitions, as in [('orders', 0)]")
    return [partition(each) for each in given]


def topics(given: object) -> list[str]:
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ClientError(f"topics={given!r}: expected a list of names")
    names = list(given)
    for name in names:
        topic(name)
    return names


def topic(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ClientError(f"topic {name!r}: expected a name")
    return name


def pattern(given: object) -> re.Pattern[str] | None:
    """A pattern that this client matches."""
    if given is None:
        return None
    if isinstance(given, re.Pattern) and isinstance(given.pattern, str):
        return given
    if not isinstance(given, str):
        raise ClientError(f"pattern={given!r}: expected text, or a compiled pattern for text")
    try:
        return re.compile(given)
    except re.error as error:
        raise ClientError(f"pattern {given!r}: {error}") from None


def listener(given: RebalanceListener | None) -> RebalanceListener | None:
    """One that would never be called is a mistake, such as a name that another client uses."""
    if given is None or is_listener(given):
        return given
    raise ClientError(
        f"listener={given!r}: expected a RebalanceListener with on_assigned(partitions), "
        "on_revoked(partitions) or on_lost(partitions)"
    )


def offsets(given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed."""
    if not isinstance(given, Mapping):
        raise ClientError(f"commit of {given!r}: expected offsets by partition, {{(topic, 0): 5}}")
    return {tp: _offset(tp, each) for tp, each in ((partition(k), v) for k, v in given.items())}


def _offset(tp: TopicPartition, each: object) -> OffsetAndMetadata:
    epoch, note = NO_EPOCH, ""
    offset = each
    if isinstance(each, tuple) and 1 <= len(each) <= 3:
        offset, epoch, note = OffsetAndMetadata(*each)
    what = f"commit of {tp}: "
    if note is not None and not isinstance(note, str):
        raise ClientError(f"{what}metadata {note!r}: expected text")
    return OffsetAndMetadata(
        whole(f"{what}offset ", offset),
        whole(f"{what}leader epoch ", epoch, least=NO_EPOCH, most=_INT_MAX),
        note or "",
    )
