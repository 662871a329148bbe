"""Reading a snapshot of the metadata log, piece by piece."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    EMPTY,
    Int16,
    Int32,
    Int64,
    Message,
    RecordsSlice,
    UInt16,
    Uuid,
    ignorable,
    message,
    never_null,
    tag,
)


@message(api=59, versions=(0, 1), flexible=0)
class FetchSnapshotRequest(Message):
    """Asks for a part of a snapshot."""

    cluster_id: Annotated[str | None, tag(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 2147483647
    topics: list[FetchSnapshotRequestTopicSnapshot] = []


class FetchSnapshotRequestTopicSnapshot(Message):
    """One of the `topics` of `FetchSnapshotRequest`."""

    name: str
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = []


class FetchSnapshotRequestPartitionSnapshot(Message):
    """One of the `partitions` of `FetchSnapshotRequestTopicSnapshot`."""

    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: FetchSnapshotRequestSnapshotId = EMPTY
    position: Int64
    replica_directory_id: Annotated[Uuid, tag(0, since=1), ignorable] = ZERO_ID


class FetchSnapshotRequestSnapshotId(Message):
    """A snapshot, by the end of what it holds."""

    end_offset: Int64
    epoch: Int32


@message(api=59, versions=(0, 1), flexible=0)
class FetchSnapshotResponse(Message):
    """A piece of the snapshot."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16 = 0
    topics: list[FetchSnapshotResponseTopicSnapshot] = []
    node_endpoints: Annotated[list[NodeEndpoint], tag(0, since=1)] = []


class FetchSnapshotResponseTopicSnapshot(Message):
    """One of the `topics` of `FetchSnapshotResponse`."""

    name: str = ""
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = []


class FetchSnapshotResponsePartitionSnapshot(Message):
    """One of the `partitions` of `FetchSnapshotResponseTopicSnapshot`."""

    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: FetchSnapshotResponseSnapshotId = EMPTY
    current_leader: Annotated[LeaderIdAndEpoch | None, tag(0), never_null] = None
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: RecordsSlice = b""


class FetchSnapshotResponseSnapshotId(Message):
    """A snapshot, by the end of what it holds."""

    end_offset: Int64 = 0
    epoch: Int32 = 0


class LeaderIdAndEpoch(Message):
    """The current leader, for a client that asked another node (KIP-951)."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class NodeEndpoint(Message):
    """The address of a node, which saves the client a metadata request (KIP-951)."""

    node_id: Int32 = 0
    host: str = ""
    port: UInt16 = 0
