"""Acquiring records for a member of a share group."""

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
    RecordsSlice,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=78, versions=(1, 2), flexible=0)
class ShareFetchRequest(Message):
    """Acquire from these partitions; acknowledge these first."""

    group_id: str | None = None
    member_id: str | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Annotated[Int8, since(2), ignorable] = 0
    is_renew_ack: Annotated[bool, since(2)] = False
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class FetchTopic(Message):
    """One of the `topics` of `ShareFetchRequest`."""

    topic_id: Uuid
    partitions: list[FetchPartition] = []


class FetchPartition(Message):
    """One of the `partitions` of `FetchTopic`."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Message):
    """A range of records, and what became of each."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8] = []


class ForgottenTopic(Message):
    """One of the `forgotten_topics_data` of `ShareFetchRequest`."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=78, versions=(1, 2), flexible=0)
class ShareFetchResponse(Message):
    """Record batches, and which of their records were acquired."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareFetchableTopicResponse(Message):
    """One of the `responses` of `ShareFetchResponse`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """One of the `partitions` of `ShareFetchableTopicResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = EMPTY
    records: RecordsSlice = b""
    acquired_records: list[AcquiredRecords] = []


class LeaderIdAndEpoch(Message):
    """The current leader, for a client that asked another node (KIP-951)."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Message):
    """A range of records that is now the member's to process."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
