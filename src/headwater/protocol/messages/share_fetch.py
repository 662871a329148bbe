"""ShareFetch (key 78)."""

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
    RecordsSlice,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=78, versions=(1, 2), flexible=0)
class ShareFetchRequest(Message):
    """The message `ShareFetchRequest`."""

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
    """A part of `ShareFetchRequest`."""

    topic_id: Uuid
    partitions: list[FetchPartition] = []


class FetchPartition(Message):
    """A part of `ShareFetchRequest`."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgementBatch(Message):
    """A part of `ShareFetchRequest`."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8] = []


class ForgottenTopic(Message):
    """A part of `ShareFetchRequest`."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=78, versions=(1, 2), flexible=0)
class ShareFetchResponse(Message):
    """The message `ShareFetchResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareFetchableTopicResponse(Message):
    """A part of `ShareFetchResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """A part of `ShareFetchResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = EMPTY
    records: RecordsSlice = b""
    acquired_records: list[AcquiredRecords] = []


class LeaderIdAndEpoch(Message):
    """A part of `ShareFetchResponse`."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Message):
    """A part of `ShareFetchResponse`."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class NodeEndpoint(Message):
    """A part of `ShareFetchResponse`."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
