"""AlterPartitionReassignments (key 45)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since


@message(api=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Message):
    """The message `AlterPartitionReassignmentsRequest`."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[bool, since(1)] = True
    topics: list[ReassignableTopic] = []


class ReassignableTopic(Message):
    """A part of `AlterPartitionReassignmentsRequest`."""

    name: str
    partitions: list[ReassignablePartition] = []


class ReassignablePartition(Message):
    """A part of `AlterPartitionReassignmentsRequest`."""

    partition_index: Int32
    replicas: list[Int32] | None = None


@message(api=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse(Message):
    """The message `AlterPartitionReassignmentsResponse`."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, since(1), ignorable] = True
    error_code: Int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


class ReassignableTopicResponse(Message):
    """A part of `AlterPartitionReassignmentsResponse`."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class ReassignablePartitionResponse(Message):
    """A part of `AlterPartitionReassignmentsResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
