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
    """Identifies a consumer group."""

    group_id: str


@message(api=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    """The epoch of a consumer group."""

    epoch: Int32
    metadata_hash: Annotated[Int64, tag(0)] = 0


@message(api=4, versions=(0, 0), flexible=None)
class ConsumerGroupPartitionMetadataKey(Message):
    """Identifies the partition metadata of a consumer group."""

    group_id: str


@message(api=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue(Message):
    """Partitions of subscribed topics; written up to 4.0, now only deleted."""

    topics: list[TopicMetadata] = []


class TopicMetadata(Message):
    """One of the `topics` of `ConsumerGroupPartitionMetadataValue`."""

    topic_id: Uuid
    topic_name: str
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata] = []


class PartitionMetadata(Message):
    """One of the `partition_metadata` of `TopicMetadata`."""

    partition: Int32
    racks: list[str] = []


@message(api=5, versions=(0, 0), flexible=None)
class ConsumerGroupMemberMetadataKey(Message):
    """Identifies a member of a consumer group."""

    group_id: str
    member_id: str


@message(api=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    """The fields that a member has sent."""

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
    """The state of a member that uses the classic protocol."""

    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol] = []


class ClassicProtocol(Message):
    """One of the `supported_protocols` of `ClassicMemberMetadata`."""

    name: str
    metadata: bytes


@message(api=6, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Identifies the target assignment of a consumer group."""

    group_id: str


@message(api=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api=7, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Identifies the target assignment of a member of a consumer group."""

    group_id: str
    member_id: str


@message(api=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The partitions a member is meant to have."""

    topic_partitions: list[TopicPartition] = []


class TopicPartition(Message):
    """One of the `topic_partitions` of `ConsumerGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=8, versions=(0, 0), flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """Identifies the current assignment of a member of a consumer group."""

    group_id: str
    member_id: str


@message(api=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The partitions a member has, and those it still has to give up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, tag(0)] = []


@message(api=16, versions=(0, 0), flexible=None)
class ConsumerGroupRegularExpressionKey(Message):
    """Identifies a regular expression of a consumer group."""

    group_id: str
    regular_expression: str


@message(api=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue(Message):
    """The topics a pattern was found to match."""

    topics: list[str] = []
    version: Int64
    timestamp: Int64
