"""Reading record batches, by consumers and by followers."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    RecordsSlice,
    Uuid,
    ignorable,
    message,
    never_null,
    nullable,
    since,
    tag,
    until,
)


@message(api=1, versions=(4, 18), flexible=12)
class FetchRequest(Message):
    """Read these partitions from these offsets, within an incremental session if there is one."""

    cluster_id: Annotated[str | None, tag(0, since=12), ignorable] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[ReplicaState | None, tag(1, since=15), never_null] = None
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, ignorable] = 2147483647
    isolation_level: Annotated[Int8, ignorable] = 0
    session_id: Annotated[Int32, since(7), ignorable] = 0
    session_epoch: Annotated[Int32, since(7), ignorable] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7)] = []
    rack_id: Annotated[str, since(11), ignorable] = ""


class ReplicaState(Message):
    """The follower that fetches."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchTopic(Message):
    """A topic to read from."""

    topic: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_ID
    partitions: list[FetchPartition] = []


class FetchPartition(Message):
    """A partition to read from, and what the reader already has of it."""

    partition: Int32
    current_leader_epoch: Annotated[Int32, since(9), ignorable] = -1
    fetch_offset: Int64
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    partition_max_bytes: Int32
    replica_directory_id: Annotated[Uuid, tag(0, since=17), ignorable] = ZERO_ID
    high_watermark: Annotated[Int64, tag(1, since=18), ignorable] = 9223372036854775807


class ForgottenTopic(Message):
    """Partitions that the session should drop."""

    topic: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_ID
    partitions: list[Int32] = []


@message(api=1, versions=(4, 18), flexible=12)
class FetchResponse(Message):
    """Record batches, and how far each partition may be read."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Annotated[Int16, since(7), ignorable] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=16)] = []


class FetchableTopicResponse(Message):
    """One of the `responses` of `FetchResponse`."""

    topic: Annotated[str, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_ID
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """The records of a partition, and its offsets."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Annotated[Int64, ignorable] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    diverging_epoch: Annotated[EpochEndOffset | None, tag(0, since=12), never_null] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, tag(1, since=12), never_null] = None
    snapshot_id: Annotated[SnapshotId | None, tag(2, since=12), never_null] = None
    aborted_transactions: Annotated[list[AbortedTransaction] | None, ignorable] = []
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Annotated[RecordsSlice, nullable(4)] = None


class EpochEndOffset(Message):
    """The offset where the reader's log diverges from the leader's; it has to truncate."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Message):
    """The current leader, for a client that asked another node (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Message):
    """The snapshot to fetch instead: the log does not reach back so far."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Message):
    """A transaction whose records a committed reader has to skip."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
