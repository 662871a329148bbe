"""Records of `__consumer_offsets` about consumer groups (KIP-848)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    EMPTY,
    Int8,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    tag,
)


@message(api=3, versions=(0, 0), flexible=None)
class ConsumerGroupMetadataKey(Message):
    """The message `ConsumerGroupMetadataKey`."""

    group_id: str


@message(api=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    """The message `ConsumerGroupMetadataValue`."""

    epoch: Int32
    metadata_hash: Annotated[Int64, tag(0)] = 0


@message(api=4, versions=(0, 0), flexible=None)
class ConsumerGroupPartitionMetadataKey(Message):
    """The message `ConsumerGroupPartitionMetadataKey`."""

    group_id: str


@message(api=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue(Message):
    """The message `ConsumerGroupPartitionMetadataValue`."""

    topics: list[TopicMetadata] = []


class TopicMetadata(Message):
    """A part of `ConsumerGroupPartitionMetadataValue`."""

    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata] = []


class PartitionMetadata(Message):
    """A part of `ConsumerGroupPartitionMetadataValue`."""

    partition: Int32
    racks: list[str] = []


@message(api=5, versions=(0, 0), flexible=None)
class ConsumerGroupMemberMetadataKey(Message):
    """The message `ConsumerGroupMemberMetadataKey`."""

    group_id: str
    member_id: str


@message(api=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    """The message `ConsumerGroupMemberMetadataValue`."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, tag(0)] = EMPTY


class ClassicMemberMetadata(Message):
    """A part of `ConsumerGroupMemberMetadataValue`."""

    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol] = []


class ClassicProtocol(Message):
    """A part of `ConsumerGroupMemberMetadataValue`."""

    name: str
    metadata: bytes


@message(api=6, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """The message `ConsumerGroupTargetAssignmentMetadataKey`."""

    group_id: str


@message(api=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The message `ConsumerGroupTargetAssignmentMetadataValue`."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api=7, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """The message `ConsumerGroupTargetAssignmentMemberKey`."""

    group_id: str
    member_id: str


@message(api=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The message `ConsumerGroupTargetAssignmentMemberValue`."""

    topic_partitions: list[TopicPartition] = []


class TopicPartition(Message):
    """A part of `ConsumerGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=8, versions=(0, 0), flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """The message `ConsumerGroupCurrentMemberAssignmentKey`."""

    group_id: str
    member_id: str


@message(api=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The message `ConsumerGroupCurrentMemberAssignmentValue`."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class TopicPartitions(Message):
    """A part of `ConsumerGroupCurrentMemberAssignmentValue`."""

    topic_id: Uuid
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, tag(0)] = []


@message(api=16, versions=(0, 0), flexible=None)
class ConsumerGroupRegularExpressionKey(Message):
    """The message `ConsumerGroupRegularExpressionKey`."""

    group_id: str
    regular_expression: str


@message(api=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message):
    """The message `ConsumerGroupRegularExpressionValue`."""

    topics: list[str] = []
    version: Int64
    timestamp: Int64
