"""Describing the quorum."""

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
)


@message(api=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest(Message):
    """Describe the quorum of the metadata log."""

    topics: list[DescribeQuorumRequestTopicData] = []


class DescribeQuorumRequestTopicData(Message):
    """One of the `topics` of `DescribeQuorumRequest`."""

    topic_name: str
    partitions: list[DescribeQuorumRequestPartitionData] = []


class DescribeQuorumRequestPartitionData(Message):
    """One of the `partitions` of `DescribeQuorumRequestTopicData`."""

    partition_index: Int32


@message(api=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse(Message):
    """The leader, the voters, the observers, and how far each is."""

    error_code: Int16 = 0
    error_message: Annotated[str | None, since(2), ignorable] = ""
    topics: list[DescribeQuorumResponseTopicData] = []
    nodes: Annotated[list[Node], since(2)] = []


class DescribeQuorumResponseTopicData(Message):
    """One of the `topics` of `DescribeQuorumResponse`."""

    topic_name: str = ""
    partitions: list[DescribeQuorumResponsePartitionData] = []


class DescribeQuorumResponsePartitionData(Message):
    """One of the `partitions` of `DescribeQuorumResponseTopicData`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(2), ignorable] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class ReplicaState(Message):
    """A replica and its progress."""

    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_ID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, since(1), ignorable] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1), ignorable] = -1


class Node(Message):
    """One of the `nodes` of `DescribeQuorumResponse`."""

    node_id: Int32 = 0
    listeners: list[Listener] = []


class Listener(Message):
    """A listener: its name, and where it is."""

    name: str = ""
    host: str = ""
    port: UInt16 = 0
