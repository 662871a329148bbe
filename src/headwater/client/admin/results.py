"""How a call that asks for many things answers: for each, what came of it or what went wrong.

    made = await admin.create_topics([NewTopic("orders", 3), NewTopic("clicks")])
    made["orders"]               # TopicCreated, or the error that this topic met
    or_raise(made)["orders"]     # TopicCreated; the first error, if there is one, is raised

What keeps the whole call from being answered (nobody can be reached, the cluster does not know the
API) is raised, whatever was asked for.
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
    """The results, if all of them are; otherwise the first error is raised."""
    good: dict[K, R] = {}
    for key, result in results.items():
        if isinstance(result, ClientError):
            raise result
        good[key] = result
    return good


def only(results: Mapping[K, R | ClientError]) -> R:
    """What came of the one thing that was asked for; its error is raised."""
    (result,) = results.values()
    if isinstance(result, ClientError):
        raise result
    return result


def check(code: int, what: str, message: str | None = None) -> None:
    if code:
        raise error_for(code, what, message)


def outcome(code: int, what: str, message: str | None = None) -> ClientError | None:
    """For what has no result but that it was done."""
    return error_for(code, what, message) if code else None


def known(kind: type[E], number: int) -> E:
    """A number by its name; one that is newer than we are is `UNKNOWN`."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
