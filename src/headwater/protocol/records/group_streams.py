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
    """Identifies a streams group."""

    group_id: str


@message(api=17, versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue(Message):
    """The epoch of a streams group, and what it was last computed from."""

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Annotated[Int32, tag(0)] = -1
    last_assignment_configs: Annotated[list[LastAssignmentConfig] | None, tag(1)] = []
    stored_description_topology_epoch: Annotated[Int32, tag(2)] = -1
    failed_description_topology_epoch: Annotated[Int32, tag(3)] = -1


class LastAssignmentConfig(Message):
    """One of the `last_assignment_configs` of `StreamsGroupMetadataValue`."""

    key: str
    value: str


@message(api=19, versions=(0, 0), flexible=None)
class StreamsGroupMemberMetadataKey(Message):
    """Identifies a member of a streams group."""

    group_id: str
    member_id: str


@message(api=19, versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue(Message):
    """The fields that a member has sent."""

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
    """A host and a port."""

    host: str
    port: UInt16


class KeyValue(Message):
    """A key and its value."""

    key: str
    value: str


@message(api=20, versions=(0, 0), flexible=None)
class StreamsGroupTargetAssignmentMetadataKey(Message):
    """Identifies the target assignment of a streams group."""

    group_id: str


@message(api=20, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, tag(0), ignorable] = 0


@message(api=21, versions=(0, 0), flexible=None)
class StreamsGroupTargetAssignmentMemberKey(Message):
    """Identifies the target assignment of a member of a streams group."""

    group_id: str
    member_id: str


@message(api=21, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue(Message):
    """The tasks a member is meant to have."""

    active_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValueTaskIds] = []


class StreamsGroupTargetAssignmentMemberValueTaskIds(Message):
    """Tasks of one subtopology."""

    subtopology_id: str
    partitions: list[Int32] = []


@message(api=22, versions=(0, 0), flexible=None)
class StreamsGroupCurrentMemberAssignmentKey(Message):
    """Identifies the current assignment of a member of a streams group."""

    group_id: str
    member_id: str


@message(api=22, versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue(Message):
    """The tasks a member has, and those it still has to give up."""

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
    """Tasks of one subtopology."""

    subtopology_id: str
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, tag(0)] = []


@message(api=23, versions=(0, 0), flexible=None)
class StreamsGroupTopologyKey(Message):
    """Identifies the topology of a streams group."""

    group_id: str


@message(api=23, versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue(Message):
    """The topology of a streams group."""

    epoch: Int32
    subtopologies: list[Subtopology] = []


class Subtopology(Message):
    """A part of a topology that is connected by topics."""

    subtopology_id: str
    source_topics: list[str] = []
    source_topic_regex: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[str] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class TopicInfo(Message):
    """A topic the group needs."""

    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig] = []


class TopicConfig(Message):
    """One of the `topic_configs` of `TopicInfo`."""

    key: str
    value: str


class CopartitionGroup(Message):
    """Topics that must have equal numbers of partitions, by their places in the lists above."""

    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []
