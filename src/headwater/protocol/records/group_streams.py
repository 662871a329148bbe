"""Records of `__consumer_offsets` about streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    UInt16,
    ignorable,
    message,
    tag,
)


@message(api=17, versions=(0, 0), flexible=None)
class StreamsGroupMetadataKey(Message):
    """The message `StreamsGroupMetadataKey`."""

    group_id: str


@message(api=17, versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue(Message):
    """The message `StreamsGroupMetadataValue`."""

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Annotated[Int32, tag(0)] = -1
    last_assignment_configs: Annotated[list[LastAssignmentConfig] | None, tag(1)] = []
    stored_description_topology_epoch: Annotated[Int32, tag(2)] = -1
    failed_description_topology_epoch: Annotated[Int32, tag(3)] = -1


class LastAssignmentConfig(Message):
    """A part of `StreamsGroupMetadataValue`."""

    key: str
    value: str


@message(api=19, versions=(0, 0), flexible=None)
class StreamsGroupMemberMetadataKey(Message):
    """The message `StreamsGroupMemberMetadataKey`."""

    group_id: str
    member_id: str


@message(api=19, versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue(Message):
    """The message `StreamsGroupMemberMetadataValue`."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []


class Endpoint(Message):
    """A part of `StreamsGroupMemberMetadataValue`."""

    host: str
    port: UInt16


class KeyValue(Message):
    """A part of `StreamsGroupMemberMetadataValue`."""

    key: str
    value: str


@message(api=20, versions=(0, 0), flexible=None)
class StreamsGroupTargetAssignmentMetadataKey(Message):
    """The message `StreamsGroupTargetAssignmentMetadataKey`."""

    group_id: str


@message(api=20, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMetadataValue(Message):
    """The message `StreamsGroupTargetAssignmentMetadataValue`."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api=21, versions=(0, 0), flexible=None)
class StreamsGroupTargetAssignmentMemberKey(Message):
    """The message `StreamsGroupTargetAssignmentMemberKey`."""

    group_id: str
    member_id: str


@message(api=21, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue(Message):
    """The message `StreamsGroupTargetAssignmentMemberValue`."""

    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []


class StreamsGroupTargetAssignmentMemberValueTaskIds(Message):
    """A part of `StreamsGroupTargetAssignmentMemberValue`."""

    subtopology_id: str
    partitions: list[Int32] = []


@message(api=22, versions=(0, 0), flexible=None)
class StreamsGroupCurrentMemberAssignmentKey(Message):
    """The message `StreamsGroupCurrentMemberAssignmentKey`."""

    group_id: str
    member_id: str


@message(api=22, versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue(Message):
    """The message `StreamsGroupCurrentMemberAssignmentValue`."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = []


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Message):
    """A part of `StreamsGroupCurrentMemberAssignmentValue`."""

    subtopology_id: str
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, tag(0)] = []


@message(api=23, versions=(0, 0), flexible=None)
class StreamsGroupTopologyKey(Message):
    """The message `StreamsGroupTopologyKey`."""

    group_id: str


@message(api=23, versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue(Message):
    """The message `StreamsGroupTopologyValue`."""

    epoch: Int32
    subtopologies: list[Subtopology] = []


class Subtopology(Message):
    """A part of `StreamsGroupTopologyValue`."""

    subtopology_id: str
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class TopicInfo(Message):
    """A part of `StreamsGroupTopologyValue`."""

    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig] = []


class TopicConfig(Message):
    """A part of `StreamsGroupTopologyValue`."""

    key: str
    value: str


class CopartitionGroup(Message):
    """A part of `StreamsGroupTopologyValue`."""

    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []
