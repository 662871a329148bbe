"""EndQuorumEpoch (key 54)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    Int16,
    Int32,
    Message,
    UInt16,
    Uuid,
    ignorable,
    message,
    since,
    tag,
    until,
)


@message(api=54, versions=(0, 1), flexible=1)
class EndQuorumEpochRequest(Message):
    """The message `EndQuorumEpochRequest`."""

    cluster_id: str | None = None
    topics: list[EndQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = []


class EndQuorumEpochRequestTopicData(Message):
    """A part of `EndQuorumEpochRequest`."""

    topic_name: str
    partitions: list[EndQuorumEpochRequestPartitionData] = []


class EndQuorumEpochRequestPartitionData(Message):
    """A part of `EndQuorumEpochRequest`."""

    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: Annotated[list[Int32], until(0), ignorable] = []
    preferred_candidates: Annotated[list[ReplicaInfo], since(1), ignorable] = []


class ReplicaInfo(Message):
    """A part of `EndQuorumEpochRequest`."""

    candidate_id: Int32
    candidate_directory_id: Uuid


class LeaderEndpoint(Message):
    """A part of `EndQuorumEpochRequest`."""

    name: str
    host: str
    port: UInt16


@message(api=54, versions=(0, 1), flexible=1)
class EndQuorumEpochResponse(Message):
    """The message `EndQuorumEpochResponse`."""

    error_code: Int16 = 0
    topics: list[EndQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=1)] = []


class EndQuorumEpochResponseTopicData(Message):
    """A part of `EndQuorumEpochResponse`."""

    topic_name: str = ""
    partitions: list[EndQuorumEpochResponsePartitionData] = []


class EndQuorumEpochResponsePartitionData(Message):
    """A part of `EndQuorumEpochResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Message):
    """A part of `EndQuorumEpochResponse`."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
