"""Fetch on a controller listener: voters and observers read the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.controller_handlers.quorum_requests import is_other_cluster, node_endpoints
from headwater.broker.quorum_driver import HIGH_WATERMARK_UNKNOWN
from headwater.errors import ErrorCode
from headwater.model import METADATA_TOPIC, METADATA_TOPIC_ID, NO_OFFSET
from headwater.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from headwater.quorum import ReplicaKey
from headwater.quorum import model as quorum_model
from headwater.security.operations import Operation
from headwater.storage import StorageFailed

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(role: ControllerRole, context: Context, request: FetchRequest) -> FetchResponse:
    check_cluster(role, context, Operation.CLUSTER_ACTION)
    if context.metered is not None:
        context.metered.exempt()
    if is_other_cluster(role, request.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    # Older versions name the topic, which members of a quorum never do.
    by_id = context.version >= 13
    topics = [topic.topic_id for topic in request.topics]
    partitions = [each for topic in request.topics for each in topic.partitions]
    if not by_id or topics != [METADATA_TOPIC_ID] or [each.partition for each in partitions] != [0]:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    state = request.replica_state
    replica_id = state.replica_id if context.version >= 15 and state else request.replica_id
    (partition,) = partitions
    epoch, fetched_epoch = partition.current_leader_epoch, partition.last_fetched_epoch
    if min(request.max_wait_ms, partition.fetch_offset) < 0 or not 0 <= fetched_epoch <= epoch:
        refused = PartitionData(
            error_code=ErrorCode.INVALID_REQUEST,
            high_watermark=NO_OFFSET,
            log_start_offset=role.metadata.raft.log_start,
            records=b"",
        )
        return _answer(role, context, refused)
    try:
        return await _fetch(role, context, request, partition, replica_id)
    except StorageFailed as failure:
        return _answer(role, context, PartitionData(error_code=failure.code))


async def _fetch(
    role: ControllerRole,
    context: Context,
    request: FetchRequest,
    partition: FetchPartition,
    replica_id: int,
) -> FetchResponse:
    fetched = await role.quorum.on_fetch(
        quorum_model.FetchRequest(
            ReplicaKey(replica_id, partition.replica_directory_id),
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
        ),
        high_watermark=(
            partition.high_watermark if context.version >= 18 else HIGH_WATERMARK_UNKNOWN
        ),
        wait_ms=request.max_wait_ms,
        bytes_max=request.max_bytes,
    )
    reply = fetched.reply
    data = PartitionData(
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        log_start_offset=role.metadata.raft.log_start,
        records=fetched.records,
    )
    if reply.diverging is not None:
        data.diverging_epoch = EpochEndOffset(
            epoch=reply.diverging.epoch, end_offset=reply.diverging.offset
        )
    if reply.snapshot is not None:
        data.snapshot_id = SnapshotId(end_offset=reply.snapshot.offset, epoch=reply.snapshot.epoch)
    return _answer(role, context, data)


def _answer(role: ControllerRole, context: Context, data: PartitionData) -> FetchResponse:
    raft = role.metadata.raft
    if context.version >= 12:
        data.current_leader = LeaderIdAndEpoch(leader_id=raft.leader_id, leader_epoch=raft.epoch)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data]
            )
        ],
        node_endpoints=[
            NodeEndpoint(node_id=raft.leader_id, host=at.host, port=at.port)
            for at in node_endpoints(role)
        ]
        if context.version >= 17
        else [],
    )
