"""FetchSnapshot: a part of a snapshot of the metadata log, for a node that is far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.controller_handlers.quorum_requests import is_other_cluster, node_endpoints
from headwater.errors import ErrorCode
from headwater.model import METADATA_TOPIC, OffsetAndEpoch
from headwater.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseSnapshotId,
    FetchSnapshotResponseTopicSnapshot,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from headwater.quorum import Role
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def handle(
    role: ControllerRole, context: Context, request: FetchSnapshotRequest
) -> FetchSnapshotResponse:
    check_cluster(role, context, Operation.CLUSTER_ACTION)
    if is_other_cluster(role, request.cluster_id):
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = [
        (topic.name, [each.partition for each in topic.partitions]) for topic in request.topics
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        return FetchSnapshotResponse(
            topics=[
                FetchSnapshotResponseTopicSnapshot(
                    name=name,
                    partitions=[
                        FetchSnapshotResponsePartitionSnapshot(
                            index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in asked
            ]
        )
    part = _read(role, request.topics[0].partitions[0], request.max_bytes)
    raft = role.metadata.raft
    part.current_leader = LeaderIdAndEpoch(leader_id=raft.leader_id, leader_epoch=raft.epoch)
    return FetchSnapshotResponse(
        topics=[FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[part])],
        node_endpoints=[
            NodeEndpoint(node_id=raft.leader_id, host=at.host, port=at.port)
            for at in node_endpoints(role)
        ]
        if context.version >= 1
        else [],
    )


def _read(
    role: ControllerRole, asked: FetchSnapshotRequestPartitionSnapshot, bytes_max: int
) -> FetchSnapshotResponsePartitionSnapshot:
    metadata = role.metadata
    raft = metadata.raft
    part = FetchSnapshotResponsePartitionSnapshot(index=0)
    wanted = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    if asked.current_leader_epoch < raft.epoch:
        part.error_code = ErrorCode.FENCED_LEADER_EPOCH
    elif asked.current_leader_epoch > raft.epoch:
        part.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif raft.role is not Role.LEADER:
        part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif (size := metadata.snapshot_size(wanted)) is None:
        part.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
    elif not 0 <= asked.position < size:
        part.error_code = ErrorCode.POSITION_OUT_OF_RANGE
    else:
        limit = min(bytes_max, role.config.controller_quorum_fetch_snapshot_max_bytes)
        part.snapshot_id = FetchSnapshotResponseSnapshotId(
            end_offset=wanted.offset, epoch=wanted.epoch
        )
        part.size = size
        part.position = asked.position
        part.unaligned_records = metadata.read_snapshot(wanted, asked.position, max(1, limit))
    return part
