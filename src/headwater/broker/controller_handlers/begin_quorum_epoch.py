"""BeginQuorumEpoch: the leader of a new epoch announces itself to the voters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.controller_handlers.quorum_requests import (
    epoch_refusal,
    is_other_cluster,
    is_other_voter,
    node_endpoints,
)
from headwater.errors import ErrorCode
from headwater.io import Address
from headwater.model import METADATA_TOPIC, NO_NODE
from headwater.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochResponse,
    BeginQuorumEpochResponsePartitionData,
    BeginQuorumEpochResponseTopicData,
    NodeEndpoint,
)
from headwater.quorum.model import BeginEpoch
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def handle(
    role: ControllerRole, context: Context, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse:
    check_cluster(role, context, Operation.CLUSTER_ACTION)
    if is_other_cluster(role, request.cluster_id):
        return BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = [(topic.topic_name, len(topic.partitions)) for topic in request.topics]
    if asked != [(METADATA_TOPIC, 1)] or request.topics[0].partitions[0].partition_index != 0:
        return BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    partition = request.topics[0].partitions[0]
    code = _refusal(role, request.voter_id, partition)
    raft = role.metadata.raft
    if not code:
        names = role.config.controller_listener_names
        for at in request.leader_endpoints:
            if at.name in names:
                role.metadata.note_address(partition.leader_id, Address(at.host, at.port))
                break
        role.quorum.on_begin_epoch(BeginEpoch(partition.leader_epoch, partition.leader_id))
    return BeginQuorumEpochResponse(
        topics=[
            BeginQuorumEpochResponseTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    BeginQuorumEpochResponsePartitionData(
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


def _refusal(
    role: ControllerRole, voter_id: int, partition: BeginQuorumEpochRequestPartitionData
) -> ErrorCode:
    raft = role.metadata.raft
    if is_other_voter(role, voter_id, partition.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    if partition.leader_id < 0:
        return ErrorCode.INVALID_REQUEST
    if partition.leader_epoch == raft.epoch and raft.leader_id not in (
        NO_NODE,
        partition.leader_id,
    ):
        return ErrorCode.INVALID_REQUEST  # an epoch has one leader
    return epoch_refusal(role, partition.leader_epoch)
