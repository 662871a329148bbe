"""The consumers' embedded protocol: what classic members say in JoinGroup and hear in SyncGroup.

A classic coordinator need not read it. One that assigns partitions to classic members must, and
speaks for the leader they do not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.groups.consumer.assignment import Partitions
from headwater.groups.consumer.topics import Topics
from headwater.protocol import DecodeError, decode, encode
from headwater.protocol.records.membership import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

_VERSION_BYTES = 2
_VERSION_MAX = 3


def version_of(data: bytes) -> int:
    """The version that stands before a subscription or an assignment, as far as it is known."""
    if len(data) < _VERSION_BYTES:
        raise DecodeError("no version before the consumer protocol's message")
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    return min(version, _VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return decode(ConsumerProtocolSubscription, data, version_of(data), _VERSION_BYTES)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return decode(ConsumerProtocolAssignment, data, version_of(data), _VERSION_BYTES)


def write_assignment(
    partitions: Mapping[bytes, Iterable[int]], topics: Topics, *, version: int
) -> bytes:
    """Topics that exist no more are left out: they have no name to be told by."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=sorted(numbers))
            for topic, numbers in partitions.items()
            if (name := topics.name(topic)) is not None
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + bytes(encode(assignment, version))


def by_id(named: Iterable[tuple[str, Iterable[int]]], topics: Topics) -> Partitions:
    """Partitions by the ids of their topics, as far as those exist."""
    return {
        topic: frozenset(numbers)
        for name, numbers in named
        if (topic := topics.id(name)) is not None
    }
