"""Giving up the leadership of the quorum."""

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
    """Announces that the leader resigns, with its preferred successors."""

    cluster_id: str | None = None
    topics: list[EndQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = []


class EndQuorumEpochRequestTopicData(Message):
    """One of the `topics` of `EndQuorumEpochRequest`."""

    topic_name: str
    partitions: list[EndQuorumEpochRequestPartitionData] = []


class EndQuorumEpochRequestPartitionData(Message):
    """One of the `partitions` of `EndQuorumEpochRequestTopicData`."""

    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: Annotated[list[Int32], until(0), ignorable] = []
    preferred_candidates: Annotated[list[ReplicaInfo], since(1), ignorable] = []


class ReplicaInfo(Message):
    """One of the `preferred_candidates` of `EndQuorumEpochRequestPartitionData`."""

    candidate_id: Int32
    candidate_directory_id: Uuid


class LeaderEndpoint(Message):
    """An address of the leader."""

    name: str
    host: str
    port: UInt16


@message(api=54, versions=(0, 1), flexible=1)
class EndQuorumEpochResponse(Message):
    """The outcome."""

    error_code: Int16 = 0
    topics: list[EndQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=1)] = []


class EndQuorumEpochResponseTopicData(Message):
    """One of the `topics` of `EndQuorumEpochResponse`."""

    topic_name: str = ""
    partitions: list[EndQuorumEpochResponsePartitionData] = []


class EndQuorumEpochResponsePartitionData(Message):
    """One of the `partitions` of `EndQuorumEpochResponseTopicData`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
