"""Describing moves that are under way."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Message, message


@message(api=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest(Message):
    """Asks for the reassignments of some partitions, or of all."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsTopics(Message):
    """One of the `topics` of `ListPartitionReassignmentsRequest`."""

    name: str
    partition_indexes: list[Int32] = []


@message(api=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse(Message):
    """The moves."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []


class OngoingTopicReassignment(Message):
    """One of the `topics` of `ListPartitionReassignmentsResponse`."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class OngoingPartitionReassignment(Message):
    """One of the `partitions` of `OngoingTopicReassignment`."""

    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []
