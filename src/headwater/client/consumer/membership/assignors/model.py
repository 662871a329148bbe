"""What an assignor is asked and what it answers. The leader of a classic group asks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headwater.model import NO_EPOCH, TopicPartition

# For each topic, for each of its partitions, the racks that have a replica of it.
Topics: TypeAlias = Mapping[str, tuple[frozenset[str], ...]]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as it describes itself when it joins."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_EPOCH  # in which it was given what it owns
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class LastAssignment:
    """What this member was given last, which it may not own any more."""

    partitions: frozenset[TopicPartition]
    generation: int


class Assignor(Protocol):
    """Divides partitions among members. One of your own goes into `partition_assignment_strategy`
    beside the names; all members of the group must know it by the same name."""

    @property
    def name(self) -> str: ...

    @property
    def cooperative(self) -> bool:
        """Whether members may keep their partitions while they rejoin. Then nothing that a member
        still owns may be given to another: it is left out, and given away in the next round."""

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        """What the leader will read as this member's `user_data`."""

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> Mapping[str, list[TopicPartition]]:
        """An entry for each member. `topics` has those that exist."""


def in_order(members: Mapping[str, GroupMember]) -> list[str]:
    """Static members first, by instance id, then the others: so a restart, which gives a static
    member another id, changes nothing."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(members, key=place)
