"""Records of `__consumer_offsets` about share groups (KIP-932)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int32, Int64, Message, Uuid, ignorable, message, tag


@message(api=11, versions=(0, 0), flexible=None)
class ShareGroupMetadataKey(Message):
    """Identifies a share group."""

    group_id: str


@message(api=11, versions=(0, 0), flexible=0)
class ShareGroupMetadataValue(Message):
    """The epoch of a share group."""

    epoch: Int32
    metadata_hash: Int64


@message(api=10, versions=(0, 0), flexible=None)
class ShareGroupMemberMetadataKey(Message):
    """Identifies a member of a share group."""

    group_id: str
    member_id: str


@message(api=10, versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue(Message):
    """The fields that a member has sent."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str] = []


@message(api=12, versions=(0, 0), flexible=None)
class ShareGroupTargetAssignmentMetadataKey(Message):
    """Identifies the target assignment of a share group."""

    group_id: str


@message(api=12, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api=13, versions=(0, 0), flexible=None)
class ShareGroupTargetAssignmentMemberKey(Message):
    """Identifies the target assignment of a member of a share group."""

    group_id: str
    member_id: str


@message(api=13, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue(Message):
    """The partitions a member is meant to have."""

    topic_partitions: list[TopicPartition] = []


class TopicPartition(Message):
    """One of the `topic_partitions` of `ShareGroupTargetAssignmentMemberValue`."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=14, versions=(0, 0), flexible=None)
class ShareGroupCurrentMemberAssignmentKey(Message):
    """Identifies the current assignment of a member of a share group."""

    group_id: str
    member_id: str


@message(api=14, versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue(Message):
    """The partitions a member has."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions] = []


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=15, versions=(0, 0), flexible=None)
class ShareGroupStatePartitionMetadataKey(Message):
    """Identifies the partition states of a share group."""

    group_id: str


@message(api=15, versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue(Message):
    """The partitions whose state is initialized, being initialized or being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


class TopicPartitionsInfo(Message):
    """One of the `initializing_topics` or `initialized_topics`."""

    topic_id: Uuid
    topic_name: str
    partitions: list[Int32] = []


class TopicInfo(Message):
    """A topic the group needs."""

    topic_id: Uuid
    topic_name: str
