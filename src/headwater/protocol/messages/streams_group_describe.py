"""Describing streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    EMPTY,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    UInt16,
    ignorable,
    message,
    since,
)


@message(api=89, versions=(0, 1), flexible=0)
class StreamsGroupDescribeRequest(Message):
    """Describe these groups."""

    group_ids: list[str] = []
    include_authorized_operations: bool
    include_topology_description: Annotated[bool, since(1)] = False


@message(api=89, versions=(0, 1), flexible=0)
class StreamsGroupDescribeResponse(Message):
    """The groups with their members and topology."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Message):
    """One of the `groups` of `StreamsGroupDescribeResponse`."""

    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Topology | None = None
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648
    topology_description: Annotated[TopologyDescription | None, since(1)] = None
    topology_description_status: Annotated[Int8, since(1)] = 0
    assignor_name: Annotated[str | None, since(1), ignorable] = None


class Topology(Message):
    """The `topology` of `DescribedGroup`."""

    epoch: Int32 = 0
    subtopologies: list[Subtopology] | None = None


class Subtopology(Message):
    """A part of a topology that is connected by topics."""

    subtopology_id: str = ""
    source_topics: list[str] = []
    repartition_sink_topics: list[str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_source_topics: list[TopicInfo] = []


class TopicInfo(Message):
    """A topic the group needs."""

    name: str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class KeyValue(Message):
    """A key and its value."""

    key: str = ""
    value: str = ""


class Member(Message):
    """One of the `members` of `DescribedGroup`."""

    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: Int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment = EMPTY
    target_assignment: Assignment = EMPTY
    is_classic: bool = False


class Endpoint(Message):
    """A host and a port."""

    host: str = ""
    port: UInt16 = 0


class TaskOffset(Message):
    """The offset of a task."""

    subtopology_id: str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class Assignment(Message):
    """The assignment of a member."""

    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class TaskIds(Message):
    """Tasks of one subtopology."""

    subtopology_id: str = ""
    partitions: list[Int32] = []


class TopologyDescription(Message):
    """A topology as people see it."""

    subtopologies: list[TopologyDescriptionSubtopology] = []
    global_stores: list[TopologyDescriptionGlobalStore] = []


class TopologyDescriptionSubtopology(Message):
    """A subtopology as people see it."""

    subtopology_id: str = ""
    nodes: list[TopologyDescriptionNode] = []


class TopologyDescriptionNode(Message):
    """A source, a processor or a sink, as people see it."""

    name: str = ""
    node_type: Int8 = 0
    source_topics: list[str] = []
    sink_topic: str | None = None
    stores: list[str] = []
    successors: list[str] = []


class TopologyDescriptionGlobalStore(Message):
    """A store that every instance holds in whole."""

    source: TopologyDescriptionNode = EMPTY
    processor: TopologyDescriptionNode = EMPTY
