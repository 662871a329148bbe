"""Entering, staying in and leaving a streams group (KIP-1071)."""

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
    until,
)


@message(api=88, versions=(0, 1), flexible=0)
class StreamsGroupHeartbeatRequest(Message):
    """A member's heartbeat: fields that have changed since the last one, None for the others."""

    group_id: str
    member_id: str
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatRequestTaskIds] | None = None
    process_id: str | None = None
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class Topology(Message):
    """The `topology` of `StreamsGroupHeartbeatRequest`."""

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
    topic_configs: list[KeyValue] = []


class CopartitionGroup(Message):
    """Topics that must have equal numbers of partitions, by their places in the lists above."""

    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


class StreamsGroupHeartbeatRequestTaskIds(Message):
    """Tasks of one subtopology."""

    subtopology_id: str
    partitions: list[Int32] = []


class StreamsGroupHeartbeatRequestEndpoint(Message):
    """A host and a port."""

    host: str
    port: UInt16


class KeyValue(Message):
    """A key and its value."""

    key: str
    value: str


class TaskOffset(Message):
    """The offset of a task."""

    subtopology_id: str
    partition: Int32
    offset: Int64


@message(api=88, versions=(0, 1), flexible=0)
class StreamsGroupHeartbeatResponse(Message):
    """The epoch of the member, its tasks, and what is wrong with the group."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag_legacy: Annotated[Int32, until(0)] = 0
    task_offset_interval_ms: Int32 = 0
    acceptable_recovery_lag: Annotated[Int64, since(1), ignorable] = -1
    status: list[Status] | None = []
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = None
    topology_description_required: Annotated[bool, since(1)] = False
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


class Status(Message):
    """Something about the group that the member should know."""

    status_code: Int8 = 0
    status_detail: str = ""


class StreamsGroupHeartbeatResponseTaskIds(Message):
    """Tasks of one subtopology."""

    subtopology_id: str = ""
    partitions: list[Int32] = []


class EndpointToPartitions(Message):
    """One of the `partitions_by_user_endpoint` of `StreamsGroupHeartbeatResponse`."""

    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = EMPTY
    active_partitions: list[TopicPartition] = []
    standby_partitions: list[TopicPartition] = []


class StreamsGroupHeartbeatResponseEndpoint(Message):
    """A host and a port."""

    host: str = ""
    port: UInt16 = 0


class TopicPartition(Message):
    """One of the `active_partitions` or `standby_partitions` of `EndpointToPartitions`."""

    topic: str = ""
    partitions: list[Int32] = []
