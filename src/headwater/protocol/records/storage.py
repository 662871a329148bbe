"""Files and records of storage: producer snapshots, remote segments."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    EMPTY,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    UInt32,
    Uuid,
    message,
    tag,
)


@message(versions=(1, 1), flexible=None)
class ProducerSnapshot(Message):
    """A snapshot file of a partition's producers, without which a restart reads the whole log."""

    crc: UInt32
    producer_entries: list[ProducerEntry] = []


class ProducerEntry(Message):
    """One of the `producer_entries` of `ProducerSnapshot`."""

    producer_id: Int64
    epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32
    current_txn_first_offset: Int64


@message(api=0, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataRecord(Message):
    """A segment that is being, or has been, copied to remote storage."""

    remote_log_segment_id: RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry = EMPTY
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry] = []
    segment_size_in_bytes: Int32
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8
    txn_index_empty: Annotated[bool, tag(0)] = False


class RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry(Message):
    """The `remote_log_segment_id` of `RemoteLogSegmentMetadataRecord`."""

    topic_id_partition: RemoteLogSegmentMetadataRecordTopicIdPartitionEntry = EMPTY
    id: Uuid


class RemoteLogSegmentMetadataRecordTopicIdPartitionEntry(Message):
    """The `topic_id_partition` of `RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry`."""

    name: str
    id: Uuid
    partition: Int32


class RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry(Message):
    """One of the `segment_leader_epochs` of `RemoteLogSegmentMetadataRecord`."""

    leader_epoch: Int32
    offset: Int64


@message(api=1, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataUpdateRecord(Message):
    """A remote segment has come into another state."""

    remote_log_segment_id: RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry = EMPTY
    broker_id: Int32
    event_timestamp_ms: Int64
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8


class RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(Message):
    """The `remote_log_segment_id` of `RemoteLogSegmentMetadataUpdateRecord`."""

    topic_id_partition: RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry = EMPTY
    id: Uuid


class RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry(Message):
    """The `topic_id_partition` of its owner."""

    name: str
    id: Uuid
    partition: Int32


@message(api=3, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataSnapshotRecord(Message):
    """A remote segment as the snapshot file of a partition keeps it."""

    segment_id: Uuid
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry] = []
    segment_size_in_bytes: Int32
    custom_metadata: bytes | None = None
    remote_log_segment_state: Int8
    txn_index_empty: Annotated[bool, tag(0)] = False


class RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry(Message):
    """One of the `segment_leader_epochs` of `RemoteLogSegmentMetadataSnapshotRecord`."""

    leader_epoch: Int32
    offset: Int64


@message(api=2, versions=(0, 0), flexible=0)
class RemotePartitionDeleteMetadataRecord(Message):
    """The remote segments of a partition are being deleted."""

    topic_id_partition: RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry = EMPTY
    broker_id: Int32
    event_timestamp_ms: Int64
    remote_partition_delete_state: Int8


class RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry(Message):
    """The `topic_id_partition` of `RemotePartitionDeleteMetadataRecord`."""

    name: str
    id: Uuid
    partition: Int32
