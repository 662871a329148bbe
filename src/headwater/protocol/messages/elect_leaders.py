"""Electing leaders by hand."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, message, since


@message(api=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest(Message):
    """Elect the preferred leader, or any, for these partitions."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic: str
    partitions: list[Int32] = []


@message(api=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = []


class ReplicaElectionResult(Message):
    """One of the `replica_election_results` of `ElectLeadersResponse`."""

    topic: str = ""
    partition_result: list[PartitionResult] = []


class PartitionResult(Message):
    """One of the `partition_result` of `ReplicaElectionResult`."""

    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
