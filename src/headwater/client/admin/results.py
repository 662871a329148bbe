"""Results of calls about many things: for each key, its result or its error.

    created = await admin.create_topics([NewTopic("orders", 3), NewTopic("clicks")])
    created["orders"]               # TopicCreated, or the error of this topic
    or_raise(created)["orders"]     # TopicCreated; raises the first error if there is one

What keeps the whole call from being answered (no broker can be reached, the cluster does not serve
the API) is raised.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import IntEnum
from typing import TypeVar

from headwater.client.errors import ClientError, error_for

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
E = TypeVar("E", bound=IntEnum)


def or_raise(results: Mapping[K, R | ClientError]) -> dict[K, R]:
    """Returns the results, or raises the first error among them."""
    good: dict[K, R] = {}
    for key, result in results.items():
        if isinstance(result, ClientError):
            raise result
        good[key] = result
    return good


def only(results: Mapping[K, R | ClientError]) -> R:
    """Returns the result of a call about one thing, or raises its error."""
    (result,) = results.values()
    if isinstance(result, ClientError):
        raise result
    return result


def check(code: int, what: str, message: str | None = None) -> None:
    if code:
        raise error_for(code, what, message)


def outcome(code: int, what: str, message: str | None = None) -> ClientError | None:
    """Returns the error of a code, or None."""
    return error_for(code, what, message) if code else None


def known(kind: type[E], number: int) -> E:
    """Returns the enum member of a number; `UNKNOWN` for one that is newer than this client."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
