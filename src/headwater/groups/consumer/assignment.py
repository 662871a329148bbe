"""What an assignor is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias

# Partitions by the id of their topic. Never empty for a topic that is there.
Partitions: TypeAlias = Mapping[bytes, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it: what it wants, and what it was meant to have so far."""

    topics: Set[bytes]
    current: Partitions
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The question: who is there, and how many partitions each topic has."""

    members: Mapping[str, Subscriber]
    partitions: Mapping[bytes, int]
    # All members want the same topics; then a simpler and better way is taken.
    homogeneous: bool


Assignor: TypeAlias = Callable[[Assignment], Mapping[str, Partitions]]
