"""Moving partitions to other brokers."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, ignorable, message, since


@message(api=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Message):
    """Start these moves; None for the replicas ends one."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[bool, since(1)] = True
    topics: list[ReassignableTopic] = []


class ReassignableTopic(Message):
    """One of the `topics` of `AlterPartitionReassignmentsRequest`."""

    name: str
    partitions: list[ReassignablePartition] = []


class ReassignablePartition(Message):
    """One of the `partitions` of `ReassignableTopic`."""

    partition_index: Int32
    replicas: list[Int32] | None = None


@message(api=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[bool, since(1), ignorable] = True
    error_code: Int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


class ReassignableTopicResponse(Message):
    """One of the `responses` of `AlterPartitionReassignmentsResponse`."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class ReassignablePartitionResponse(Message):
    """One of the `partitions` of `ReassignableTopicResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
