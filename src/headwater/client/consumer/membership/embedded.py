"""The consumers' embedded protocol: what members of a classic group tell each other through it.

Written in version 3, as the Java client does; every version starts like the one before, so older
members read the part they know. A subscription or assignment of a later version is read as far as
version 3 goes.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.client.consumer.membership.assignors.model import GroupMember
from headwater.model import TopicPartition
from headwater.protocol import DecodeError, decode, encode
from headwater.protocol.records.membership import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

PROTOCOL_TYPE = "consumer"
_VERSION_MAX = 3
_VERSION_BYTES = 2


def write_subscription(
    *,
    topics: Iterable[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return _prefix(_VERSION_MAX) + encode(subscription, _VERSION_MAX)


def read_subscription(data: bytes, *, instance_id: str | None = None) -> GroupMember:
    """DecodeError if the bytes are no subscription."""
    read = decode(ConsumerProtocolSubscription, data, _version(data), _VERSION_BYTES)
    return GroupMember(
        topics=frozenset(read.topics),
        owned=tuple(
            TopicPartition(each.topic, number)
            for each in read.owned_partitions
            for number in each.partitions
        ),
        generation=read.generation_id,
        instance_id=instance_id,
        rack=read.rack_id or None,
        user_data=None if read.user_data is None else bytes(read.user_data),
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )
    return _prefix(_VERSION_MAX) + encode(assignment, _VERSION_MAX)


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """DecodeError if the bytes are no assignment."""
    read = decode(ConsumerProtocolAssignment, data, _version(data), _VERSION_BYTES)
    return frozenset(
        TopicPartition(each.topic, number)
        for each in read.assigned_partitions
        for number in each.partitions
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics and their partitions, both in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _prefix(version: int) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big")


def _version(data: bytes) -> int:
    if len(data) < _VERSION_BYTES:
        raise DecodeError(f"{len(data)} bytes are too few for the consumer protocol")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    return min(version, _VERSION_MAX)
