"""The consumer protocol: what consumers of a classic group put into JoinGroup and SyncGroup.

A member's subscription goes to the leader, and the leader's assignment back to the member, as bytes
that a coordinator passes on; it reads them to learn which topics a group subscribes to, to migrate
a group to the newer protocol, and to describe it.

Each message follows its version in two bytes. Every version starts like the one before it, so that
a message of a later version is read as far as version 3 goes, and older members read the part they
know of ours.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.model import TopicPartition
from headwater.protocol import DecodeError, decode, encode
from headwater.protocol.records.membership import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
_VERSION_BYTES = 2


def write_subscription(
    *,
    topics: Iterable[str],
    user_data: bytes | None = None,
    owned: Iterable[TopicPartition] = (),
    generation: int = -1,
    rack: str | None = None,
    version: int = VERSION_MAX,
) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return _prefix(version) + bytes(encode(subscription, version))


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises DecodeError if the bytes are not a subscription."""
    return decode(ConsumerProtocolSubscription, data, version_of(data), _VERSION_BYTES)


def read_topics(data: bytes) -> list[str]:
    """Returns only the topics of a subscription, which no other part of it can make unreadable."""
    version_of(data)
    return decode(ConsumerProtocolSubscription, data, 0, _VERSION_BYTES).topics


def write_assignment(partitions: Iterable[TopicPartition], *, version: int = VERSION_MAX) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(partitions).items()
        ]
    )
    return _prefix(version) + bytes(encode(assignment, version))


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises DecodeError if the bytes are not an assignment."""
    return decode(ConsumerProtocolAssignment, data, version_of(data), _VERSION_BYTES)


def owned_partitions(subscription: ConsumerProtocolSubscription) -> list[TopicPartition]:
    return _partitions(subscription.owned_partitions)


def assigned_partitions(assignment: ConsumerProtocolAssignment) -> list[TopicPartition]:
    return _partitions(assignment.assigned_partitions)


def version_of(data: bytes) -> int:
    """Returns the version to read a subscription or an assignment in."""
    if len(data) < _VERSION_BYTES:
        raise DecodeError(f"{len(data)} bytes are too few for the consumer protocol")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    return min(version, VERSION_MAX)


def _prefix(version: int) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _partitions(
    topics: Iterable[
        ConsumerProtocolSubscriptionTopicPartition | ConsumerProtocolAssignmentTopicPartition
    ],
) -> list[TopicPartition]:
    return [TopicPartition(each.topic, number) for each in topics for number in each.partitions]
