"""Announcing that an epoch of the quorum has a leader."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
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
)


@message(api=53, versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest(Message):
    """Announces the leader of an epoch."""

    cluster_id: str | None = None
    voter_id: Annotated[Int32, since(1), ignorable] = -1
    topics: list[BeginQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1), ignorable] = []


class BeginQuorumEpochRequestTopicData(Message):
    """One of the `topics` of `BeginQuorumEpochRequest`."""

    topic_name: str
    partitions: list[BeginQuorumEpochRequestPartitionData] = []


class BeginQuorumEpochRequestPartitionData(Message):
    """One of the `partitions` of `BeginQuorumEpochRequestTopicData`."""

    partition_index: Int32
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_ID
    leader_id: Int32
    leader_epoch: Int32


class LeaderEndpoint(Message):
    """An address of the leader."""

    name: str
    host: str
    port: UInt16


@message(api=53, versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse(Message):
    """The outcome, and the leader that the voter knows."""

    error_code: Int16 = 0
    topics: list[BeginQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=1)] = []


class BeginQuorumEpochResponseTopicData(Message):
    """One of the `topics` of `BeginQuorumEpochResponse`."""

    topic_name: str = ""
    partitions: list[BeginQuorumEpochResponsePartitionData] = []


class BeginQuorumEpochResponsePartitionData(Message):
    """One of the `partitions` of `BeginQuorumEpochResponseTopicData`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
