"""Records of `__consumer_offsets` about share groups (KIP-932)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int32, Int64, Message, Uuid, ignorable, message, tag


@message(api=11, versions=(0, 0), flexible=None)
class ShareGroupMetadataKey(Message):
    """The message `ShareGroupMetadataKey`."""

    group_id: str


@message(api=11, versions=(0, 0), flexible=0)
class ShareGroupMetadataValue(Message):
    """The message `ShareGroupMetadataValue`."""

    epoch: Int32
    metadata_hash: Int64


@message(api=10, versions=(0, 0), flexible=None)
class ShareGroupMemberMetadataKey(Message):
    """The message `ShareGroupMemberMetadataKey`."""

    group_id: str
    member_id: str


@message(api=10, versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue(Message):
    """The message `ShareGroupMemberMetadataValue`."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str] = []


@message(api=12, versions=(0, 0), flexible=None)
class ShareGroupTargetAssignmentMetadataKey(Message):
    """The message `ShareGroupTargetAssignmentMetadataKey`."""

    group_id: str


@message(api=12, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue(Message):
    """The message `ShareGroupTargetAssignmentMetadataValue`."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api=13, versions=(0, 0), flexible=None)
class ShareGroupTargetAssignmentMemberKey(Message):
    """The message `ShareGroupTargetAssignmentMemberKey`."""

    group_id: str
    member_id: str


@message(api=13, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue(Message):
    """The message `ShareGroupTargetAssignmentMemberValue`."""

    topic_partitions: list[TopicPartition] = []


class TopicPartition(Message):
    """A part of `ShareGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=14, versions=(0, 0), flexible=None)
class ShareGroupCurrentMemberAssignmentKey(Message):
    """The message `ShareGroupCurrentMemberAssignmentKey`."""

    group_id: str
    member_id: str


@message(api=14, versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue(Message):
    """The message `ShareGroupCurrentMemberAssignmentValue`."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions] = []


class TopicPartitions(Message):
    """A part of `ShareGroupCurrentMemberAssignmentValue`."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=15, versions=(0, 0), flexible=None)
class ShareGroupStatePartitionMetadataKey(Message):
    """The message `ShareGroupStatePartitionMetadataKey`."""

    group_id: str


@message(api=15, versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue(Message):
    """The message `ShareGroupStatePartitionMetadataValue`."""

    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


class TopicPartitionsInfo(Message):
    """A part of `ShareGroupStatePartitionMetadataValue`."""

    topic_id: Uuid
    topic_name: str
    partitions: list[Int32] = []


class TopicInfo(Message):
    """A part of `ShareGroupStatePartitionMetadataValue`."""

    topic_id: Uuid
    topic_name: str
