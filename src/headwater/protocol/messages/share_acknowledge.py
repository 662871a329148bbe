"""Acknowledging records of a share group."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    EMPTY,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest(Message):
    """These records are done, released or rejected."""

    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    is_renew_ack: Annotated[bool, since(2)] = False
    topics: list[AcknowledgeTopic] = []


class AcknowledgeTopic(Message):
    """One of the `topics` of `ShareAcknowledgeRequest`."""

    topic_id: Uuid
    partitions: list[AcknowledgePartition] = []


class AcknowledgePartition(Message):
    """One of the `partitions` of `AcknowledgeTopic`."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Message):
    """A range of records, and what became of each."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8] = []


@message(api=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2), ignorable] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareAcknowledgeTopicResponse(Message):
    """One of the `responses` of `ShareAcknowledgeResponse`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """One of the `partitions` of `ShareAcknowledgeTopicResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = EMPTY


class LeaderIdAndEpoch(Message):
    """The current leader, for a client that asked another node (KIP-951)."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
