"""`sticky` and `cooperative-sticky`: even loads, and partitions that stay with their owners.

Both divide as the broker's `uniform` assignor does, and then consider racks. They differ in how the
leader learns the current owners. Members of `sticky` give up everything before they join, and
report what they had in their user data. Members of `cooperative-sticky` keep their partitions while
they join: a partition that moves is first left out, until its owner has given it up, and assigned
to its new owner in the next rebalance.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Annotated, TypeAlias

from headwater.client.consumer.membership.assignors.model import (
    GroupMember,
    LastAssignment,
    Topics,
    racks_matter,
)
from headwater.groups.consumer.assignors import Assignment, Subscriber, assign_uniformly
from headwater.model import NO_EPOCH, TopicPartition
from headwater.protocol import DecodeError, decode, encode
from headwater.protocol.schema import Int32, Message, message, since

Parts: TypeAlias = Mapping[str, Iterable[TopicPartition]]

_GENERATION = struct.Struct(">i")
_DIVISIONS_MAX = 8  # mostly the second equals the first


@message(versions=(0, 1), flexible=None)
class StickyUserData(Message):
    """The user data of the Java client's sticky assignor; version 0 had no generation."""

    previous_assignment: list[StickyTopic] = []
    generation: Annotated[Int32, since(1)] = NO_EPOCH


class StickyTopic(Message):
    """One of the topics of `StickyUserData`."""

    topic: str
    partitions: list[Int32] = []


class StickyAssignor:
    """Kafka's StickyAssignor, which is eager."""

    name = "sticky"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        if last is None:
            return None
        topics: dict[str, StickyTopic] = {}
        for topic, number in sorted(last.partitions):
            topics.setdefault(topic, StickyTopic(topic=topic)).partitions.append(number)
        data = StickyUserData(previous_assignment=list(topics.values()), generation=last.generation)
        return encode(data, 1)

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        return _divide(topics, members, {each: _previous(members[each]) for each in members})


class CooperativeStickyAssignor:
    """Kafka's CooperativeStickyAssignor."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        # Before version 2 of the subscription the generation had no field of its own.
        return _GENERATION.pack(NO_EPOCH if last is None else last.generation)

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        claims = {
            member_id: LastAssignment(frozenset(member.owned), _generation(member))
            for member_id, member in members.items()
        }
        assignment = _divide(topics, members, claims)
        return _without_moves(assignment, members)


def _generation(member: GroupMember) -> int:
    if member.generation == NO_EPOCH and len(member.user_data or b"") >= _GENERATION.size:
        generation: int = _GENERATION.unpack_from(member.user_data or b"")[0]
        return generation
    return member.generation


def _previous(member: GroupMember) -> LastAssignment:
    """Reads the user data of a sticky member; invalid data counts as no assignment."""
    for version in (1, 0):
        try:
            read = decode(StickyUserData, member.user_data or b"", version)
        except DecodeError:
            continue
        partitions = frozenset(
            TopicPartition(each.topic, number)
            for each in read.previous_assignment
            for number in each.partitions
        )
        return LastAssignment(partitions, read.generation)
    return LastAssignment(frozenset(), NO_EPOCH)


def _divide(
    topics: Topics, members: Mapping[str, GroupMember], claims: Mapping[str, LastAssignment]
) -> dict[str, list[TopicPartition]]:
    owners = _owners(claims, topics)
    assignment: dict[str, list[TopicPartition]] = {}
    for _ in range(_DIVISIONS_MAX):
        before, assignment = assignment, _divided(topics, members, owners)
        if assignment == before:
            break
        # After partitions were exchanged because of racks, loads may become even more equal; and
        # the next rebalance must come to the same result.
        owners = {tp: each for each, mine in assignment.items() for tp in mine}
    return assignment


def _divided(
    topics: Topics, members: Mapping[str, GroupMember], owners: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    wanted = {each: member.topics.intersection(topics) for each, member in members.items()}
    current: dict[str, dict[bytes, set[int]]] = {each: {} for each in members}
    for (topic, number), owner in owners.items():
        if topic in wanted[owner]:
            current[owner].setdefault(topic.encode(), set()).add(number)
    assignment = assign_uniformly(
        Assignment(
            members={
                each: Subscriber(
                    topics={topic.encode() for topic in wanted[each]},
                    current={topic: frozenset(mine) for topic, mine in current[each].items()},
                )
                for each in members
            },
            partitions={topic.encode(): len(racks) for topic, racks in topics.items()},
            homogeneous=len(set(wanted.values())) == 1,
        )
    )
    even = {
        each: [
            TopicPartition(topic.decode(), number)
            for topic, numbers in assignment[each].items()
            for number in numbers
        ]
        for each in members
    }
    near = _brought_near(topics, members, even, owners)
    return {each: sorted(near[each]) for each in members}


def _owners(claims: Mapping[str, LastAssignment], topics: Topics) -> dict[TopicPartition, str]:
    """Returns the owner of each partition. Of two members that claim it, the one with the later
    generation owns it; if both have the same generation, neither does."""
    owners: dict[TopicPartition, str] = {}
    disputed: dict[TopicPartition, int] = {}
    for member_id in sorted(claims):
        claim = claims[member_id]
        for partition in claim.partitions:
            if not 0 <= partition.partition < len(topics.get(partition.topic, ())):
                continue
            other = owners.get(partition)
            others = NO_EPOCH - 1 if other is None else claims[other].generation
            others = max(others, disputed.get(partition, others))
            if claim.generation > others:
                owners[partition] = member_id
            elif claim.generation == others:
                owners.pop(partition, None)
                disputed[partition] = others
    return owners


def _without_moves(
    assignment: Mapping[str, list[TopicPartition]], members: Mapping[str, GroupMember]
) -> dict[str, list[TopicPartition]]:
    """Leaves out partitions that another member still owns."""
    held = {partition for member in members.values() for partition in member.owned}
    return {
        member_id: [each for each in mine if each not in held or each in members[member_id].owned]
        for member_id, mine in assignment.items()
    }


def _brought_near(
    topics: Topics,
    members: Mapping[str, GroupMember],
    assignment: Parts,
    owners: Mapping[TopicPartition, str],
) -> Parts:
    """Exchanges partitions between members for as long as that brings more of them near and keeps
    the loads even (KIP-881). Partitions that move anyway go first, so that few others do; `owners`
    are the current owners."""
    racks = {
        TopicPartition(topic, number): each
        for topic, partitions in topics.items()
        for number, each in enumerate(partitions)
    }
    if not racks_matter(racks.values(), (each.rack for each in members.values() if each.rack)):
        return assignment
    exchange = _Exchange(racks, members, assignment)
    exchange.run({tp for each, mine in assignment.items() for tp in mine if owners.get(tp) != each})
    exchange.run(racks.keys())
    return exchange.mine


class _Exchange:
    """Assignments between which partitions are exchanged."""

    def __init__(
        self,
        racks: Mapping[TopicPartition, frozenset[str]],
        members: Mapping[str, GroupMember],
        assignment: Parts,
    ) -> None:
        self.mine: dict[str, dict[TopicPartition, None]] = {}
        self._racks = racks
        self._members = members
        self._in_rack: dict[str, list[str]] = {}
        # For each member, its partitions by rack, and those without a replica in its own rack.
        self._held: dict[str, dict[str, dict[TopicPartition, None]]] = {}
        self._far: dict[str, dict[TopicPartition, None]] = {}
        for member_id in sorted(members):
            self.mine[member_id], self._held[member_id], self._far[member_id] = {}, {}, {}
            if (rack := members[member_id].rack) is not None:
                self._in_rack.setdefault(rack, []).append(member_id)
            for tp in sorted(assignment[member_id]):
                self._give(member_id, tp)

    def run(self, movable: Iterable[TopicPartition]) -> None:
        """Exchanges these partitions until no exchange helps. Each brings one more near, so this
        ends."""
        may_move = frozenset(movable)
        improved = True
        while improved:
            improved = False
            for member_id, far in self._far.items():
                for tp in [each for each in far if each in may_move]:
                    improved |= tp in far and self._bring_near(tp, member_id, may_move)

    def _bring_near(
        self, tp: TopicPartition, owner: str, may_move: frozenset[TopicPartition]
    ) -> bool:
        for rack in sorted(self._racks[tp]):
            for taker in self._in_rack.get(rack, ()):
                if tp.topic not in self._members[taker].topics:
                    continue
                has_fewer = len(self.mine[taker]) < len(self.mine[owner])
                back = None if has_fewer else self._returned(taker, owner, may_move)
                if back is None and not has_fewer:
                    continue
                self._move(tp, owner, taker)
                if back is not None:
                    self._move(back, taker, owner)
                return True
        return False

    def _returned(
        self, taker: str, owner: str, may_move: frozenset[TopicPartition]
    ) -> TopicPartition | None:
        """Returns what the taker can give back: far from itself, or near the owner."""
        wanted = self._members[owner].topics
        near_owner = self._held[taker].get(self._members[owner].rack or "", {})
        for some in (self._far[taker], near_owner):
            for tp in some:
                if tp in may_move and tp.topic in wanted:
                    return tp
        return None

    def _move(self, tp: TopicPartition, giver: str, taker: str) -> None:
        del self.mine[giver][tp]
        for rack in self._racks[tp]:
            del self._held[giver][rack][tp]
        self._far[giver].pop(tp, None)
        self._give(taker, tp)

    def _give(self, member_id: str, tp: TopicPartition) -> None:
        self.mine[member_id][tp] = None
        for rack in self._racks[tp]:
            self._held[member_id].setdefault(rack, {})[tp] = None
        if self._members[member_id].rack not in self._racks[tp]:
            self._far[member_id][tp] = None
