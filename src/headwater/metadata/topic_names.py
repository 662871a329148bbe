"""Rules for topic names.

A topic's name becomes a directory name, so these rules also protect the file system from clients.
Dots and underscores collide in metric names, so Kafka refuses a topic whose name differs from
another's only in these.
"""

from __future__ import annotations

import re

from headwater.errors import ApiError, ErrorCode

NAME_CHARACTERS_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def why_invalid(name: str) -> str | None:
    """Returns why a name is invalid, or None if it is valid."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"a topic must not be named {name!r}"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"topic name has {len(name)} characters, at most {NAME_CHARACTERS_MAX} are allowed"
    if not _LEGAL.match(name):
        return f"topic name {name!r} may have only ASCII letters, digits, '.', '_' and '-'"
    return None


def check(name: str) -> None:
    problem = why_invalid(name)
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def is_internal(name: str) -> bool:
    """Returns whether only the cluster itself may write to the topic."""
    return name in _INTERNAL


def may_collide(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Returns the same key for names that cannot exist at the same time."""
    return name.replace(".", "_")
