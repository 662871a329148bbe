"""What the members of a classic consumer group tell each other, opaque to the broker."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int32, Message, ignorable, message, since


@message(versions=(0, 3), flexible=None)
class ConsumerProtocolSubscription(Message):
    """The message `ConsumerProtocolSubscription`."""

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: Annotated[
        list[ConsumerProtocolSubscriptionTopicPartition], since(1), ignorable
    ] = []
    generation_id: Annotated[Int32, since(2), ignorable] = -1
    rack_id: Annotated[str | None, since(3), ignorable] = None


class ConsumerProtocolSubscriptionTopicPartition(Message):
    """A part of `ConsumerProtocolSubscription`."""

    topic: str
    partitions: list[Int32] = []


@message(versions=(0, 3), flexible=None)
class ConsumerProtocolAssignment(Message):
    """The message `ConsumerProtocolAssignment`."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = []
    user_data: bytes | None = None


class ConsumerProtocolAssignmentTopicPartition(Message):
    """A part of `ConsumerProtocolAssignment`."""

    topic: str
    partitions: list[Int32] = []
