"""EndQuorumEpoch: the leader resigns, and names who should follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.controller_handlers.quorum_requests import (
    epoch_refusal,
    is_other_cluster,
    node_endpoints,
)
from headwater.errors import ErrorCode
from headwater.model import METADATA_TOPIC, NO_NODE
from headwater.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochRequestPartitionData,
    EndQuorumEpochResponse,
    EndQuorumEpochResponsePartitionData,
    EndQuorumEpochResponseTopicData,
    NodeEndpoint,
)
from headwater.quorum.model import EndEpoch
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def handle(
    role: ControllerRole, context: Context, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse:
    check_cluster(role, context, Operation.CLUSTER_ACTION)
    if is_other_cluster(role, request.cluster_id):
        return EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = [(topic.topic_name, len(topic.partitions)) for topic in request.topics]
    if asked != [(METADATA_TOPIC, 1)] or request.topics[0].partitions[0].partition_index != 0:
        return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    partition = request.topics[0].partitions[0]
    raft = role.metadata.raft
    code = _refusal(role, partition)
    if not code:
        successors = (
            [each.candidate_id for each in partition.preferred_candidates]
            if context.version >= 1
            else partition.preferred_successors
        )
        role.quorum.on_end_epoch(
            EndEpoch(partition.leader_epoch, partition.leader_id, tuple(successors))
        )
    return EndQuorumEpochResponse(
        topics=[
            EndQuorumEpochResponseTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    EndQuorumEpochResponsePartitionData(
                        partition_index=0,
                        error_code=code,
                        leader_id=raft.leader_id,
                        leader_epoch=raft.epoch,
                    )
                ],
            )
        ],
        node_endpoints=[
            NodeEndpoint(node_id=raft.leader_id, host=at.host, port=at.port)
            for at in node_endpoints(role)
        ]
        if context.version >= 1
        else [],
    )


def _refusal(role: ControllerRole, partition: EndQuorumEpochRequestPartitionData) -> ErrorCode:
    raft = role.metadata.raft
    if partition.leader_id < 0:
        return ErrorCode.INVALID_REQUEST
    if partition.leader_epoch == raft.epoch and raft.leader_id not in (
        NO_NODE,
        partition.leader_id,
    ):
        return ErrorCode.INVALID_REQUEST
    return epoch_refusal(role, partition.leader_epoch)
