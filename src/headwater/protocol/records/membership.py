"""Messages between the members of a classic consumer group, opaque to the broker."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int32, Message, ignorable, message, since


@message(versions=(0, 3), flexible=None)
class ConsumerProtocolSubscription(Message):
    """A member's message to the leader in JoinGroup: topics, and the partitions it owns."""

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: Annotated[
        list[ConsumerProtocolSubscriptionTopicPartition], since(1), ignorable
    ] = []
    generation_id: Annotated[Int32, since(2), ignorable] = -1
    rack_id: Annotated[str | None, since(3), ignorable] = None


class ConsumerProtocolSubscriptionTopicPartition(Message):
    """One of the `owned_partitions` of `ConsumerProtocolSubscription`."""

    topic: str
    partitions: list[Int32] = []


@message(versions=(0, 3), flexible=None)
class ConsumerProtocolAssignment(Message):
    """The leader's message to a member in SyncGroup: its partitions."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = []
    user_data: bytes | None = None


class ConsumerProtocolAssignmentTopicPartition(Message):
    """One of the `assigned_partitions` of `ConsumerProtocolAssignment`."""

    topic: str
    partitions: list[Int32] = []
