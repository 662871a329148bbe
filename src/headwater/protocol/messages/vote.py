"""Asking for a vote in an election of the quorum."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    UInt16,
    Uuid,
    ignorable,
    message,
    since,
    tag,
)


@message(api=52, versions=(0, 2), flexible=0)
class VoteRequest(Message):
    """Asks for a vote, or with pre-vote whether it would be granted."""

    cluster_id: str | None = None
    voter_id: Annotated[Int32, since(1), ignorable] = -1
    topics: list[VoteRequestTopicData] = []


class VoteRequestTopicData(Message):
    """One of the `topics` of `VoteRequest`."""

    topic_name: str
    partitions: list[VoteRequestPartitionData] = []


class VoteRequestPartitionData(Message):
    """One of the `partitions` of `VoteRequestTopicData`."""

    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_ID
    voter_directory_id: Annotated[Uuid, since(1), ignorable] = ZERO_ID
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Annotated[bool, since(2)] = False


@message(api=52, versions=(0, 2), flexible=0)
class VoteResponse(Message):
    """The vote, and who leads if that is known."""

    error_code: Int16 = 0
    topics: list[VoteResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=1)] = []


class VoteResponseTopicData(Message):
    """One of the `topics` of `VoteResponse`."""

    topic_name: str = ""
    partitions: list[VoteResponsePartitionData] = []


class VoteResponsePartitionData(Message):
    """One of the `partitions` of `VoteResponseTopicData`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: bool = False


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
