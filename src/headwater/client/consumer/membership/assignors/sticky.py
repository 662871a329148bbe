"""`sticky` and `cooperative-sticky`: loads that are even, and partitions that stay where they are.

Both divide as the broker's `uniform` assignor does, and then look at racks (`racks.py`); what is
theirs is who is believed to own what. Members of `sticky` give everything back before they join, so
they tell in their user data what they had. Members of `cooperative-sticky` keep what they own while
they join; so a partition that moves is first left out, until its owner has given it back, and goes
to its new owner in the round after.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated

from headwater.client.consumer.membership.assignors.model import (
    GroupMember,
    LastAssignment,
    Topics,
)
from headwater.client.consumer.membership.assignors.racks import brought_near
from headwater.groups.consumer.assignors import Assignment, Subscriber, assign_uniformly
from headwater.model import NO_EPOCH, TopicPartition
from headwater.protocol import DecodeError, decode, encode
from headwater.protocol.schema import Int32, Message, message, since

_GENERATION = struct.Struct(">i")
_DIVISIONS_MAX = 8  # the second is mostly the last


@message(versions=(0, 1), flexible=None)
class StickyUserData(Message):
    """What the Java client's sticky assignor writes; version 0 had no generation."""

    previous_assignment: list[StickyTopic] = []
    generation: Annotated[Int32, since(1)] = NO_EPOCH


class StickyTopic(Message):
    """One of the topics of `StickyUserData`."""

    topic: str
    partitions: list[Int32] = []


class StickyAssignor:
    name = "sticky"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        if last is None:
            return None
        topics: dict[str, StickyTopic] = {}
        for topic, number in sorted(last.partitions):
            topics.setdefault(topic, StickyTopic(topic=topic)).partitions.append(number)
        said = StickyUserData(previous_assignment=list(topics.values()), generation=last.generation)
        return encode(said, 1)

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        return _divide(topics, members, {each: _said(members[each]) for each in members})


class CooperativeStickyAssignor:
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
        answer = _divide(topics, members, claims)
        return _without_moves(answer, members)


def _generation(member: GroupMember) -> int:
    if member.generation == NO_EPOCH and len(member.user_data or b"") >= _GENERATION.size:
        generation: int = _GENERATION.unpack_from(member.user_data or b"")[0]
        return generation
    return member.generation


def _said(member: GroupMember) -> LastAssignment:
    """What the user data of a sticky member tells; nothing if it cannot be read."""
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
    answer: dict[str, list[TopicPartition]] = {}
    for _ in range(_DIVISIONS_MAX):
        before, answer = answer, _divided(topics, members, owners)
        if answer == before:
            break
        # What was exchanged for the racks' sake may let loads be more even than before; and who
        # asks the next time shall hear the same.
        owners = {tp: each for each, mine in answer.items() for tp in mine}
    return answer


def _divided(
    topics: Topics, members: Mapping[str, GroupMember], owners: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    wanted = {each: member.topics.intersection(topics) for each, member in members.items()}
    current: dict[str, dict[bytes, set[int]]] = {each: {} for each in members}
    for (topic, number), owner in owners.items():
        if topic in wanted[owner]:
            current[owner].setdefault(topic.encode(), set()).add(number)
    answer = assign_uniformly(
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
            for topic, numbers in answer[each].items()
            for number in numbers
        ]
        for each in members
    }
    near = brought_near(topics, members, even, owners)
    return {each: sorted(near[each]) for each in members}


def _owners(claims: Mapping[str, LastAssignment], topics: Topics) -> dict[TopicPartition, str]:
    """Who is believed. Of two who claim a partition the one that was given it later; if both name
    the same generation, one of them is wrong, and neither is believed."""
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
    answer: Mapping[str, list[TopicPartition]], members: Mapping[str, GroupMember]
) -> dict[str, list[TopicPartition]]:
    """Leaves out what somebody else holds on to until they hear of this assignment."""
    held = {partition for member in members.values() for partition in member.owned}
    return {
        member_id: [each for each in mine if each not in held or each in members[member_id].owned]
        for member_id, mine in answer.items()
    }
