"""ShareAcknowledge (key 79)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    EMPTY,
    ZERO_UUID,
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
    """The message `ShareAcknowledgeRequest`."""

    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    is_renew_ack: Annotated[bool, since(2)] = False
    topics: list[AcknowledgeTopic] = []


class AcknowledgeTopic(Message):
    """A part of `ShareAcknowledgeRequest`."""

    topic_id: Uuid
    partitions: list[AcknowledgePartition] = []


class AcknowledgePartition(Message):
    """A part of `ShareAcknowledgeRequest`."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Message):
    """A part of `ShareAcknowledgeRequest`."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8] = []


@message(api=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse(Message):
    """The message `ShareAcknowledgeResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2), ignorable] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareAcknowledgeTopicResponse(Message):
    """A part of `ShareAcknowledgeResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """A part of `ShareAcknowledgeResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = EMPTY


class LeaderIdAndEpoch(Message):
    """A part of `ShareAcknowledgeResponse`."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Message):
    """A part of `ShareAcknowledgeResponse`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
