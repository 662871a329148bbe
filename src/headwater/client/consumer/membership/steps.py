"""What a poll has to do next for the membership, in order, until nothing is due."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from headwater.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Lose:
    """Call `lost` for these; then they have been given up."""

    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Call `revoked` for these while they are still ours; then they have been given up."""

    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assign:
    """Take over, then call `assigned` for these, which are new."""

    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Join:
    """Start to join; the user's partitions are in order for it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The group is asked, and has not answered yet."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is due."""


Step: TypeAlias = Lose | Revoke | Assign | Join | Wait | Done

JOIN, WAIT, DONE = Join(), Wait(), Done()


def in_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return sorted(partitions)
