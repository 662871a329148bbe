"""The interface of assignors, which divide partitions for the leader of a classic group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headwater.model import NO_EPOCH, TopicPartition

# Topics that exist, with the racks of the replicas of each partition.
Topics: TypeAlias = Mapping[str, tuple[frozenset[str], ...]]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as its JoinGroup request describes it."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_EPOCH  # of the assignment that it owns
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class LastAssignment:
    """The last assignment of this member, which it may not own any more."""

    partitions: frozenset[TopicPartition]
    generation: int


class Assignor(Protocol):
    """Divides partitions among members. To use your own, put it into
    `partition_assignment_strategy`; all members of the group must have one with the same name."""

    @property
    def name(self) -> str: ...

    @property
    def cooperative(self) -> bool:
        """Returns whether members keep their partitions while they rejoin. If so, a partition that
        one member owns must not be assigned to another: leave it out, and assign it when its owner
        has given it up and the group rebalances again."""

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        """Returns what the leader gets as this member's `user_data`."""

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> Mapping[str, list[TopicPartition]]:
        """Returns the partitions of each member."""


def in_order(members: Mapping[str, GroupMember]) -> list[str]:
    """Returns static members by instance id, then the others. The restart of a static member, which
    changes its member id, does not change the order."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(members, key=place)


def racks_matter(partition_racks: Iterable[frozenset[str]], reader_racks: Iterable[str]) -> bool:
    """Returns whether racks distinguish partitions (KIP-881): some partition has a replica in the
    rack of a reader, and some partition lacks a replica in a rack."""
    racks = list(partition_racks)
    everywhere = frozenset[str]().union(*racks)
    return not everywhere.isdisjoint(reader_racks) and any(each != everywhere for each in racks)
