"""Vote: a candidate asks for this node's vote, or whether it would get it (pre-vote)."""

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
from headwater.model import METADATA_TOPIC, OffsetAndEpoch
from headwater.protocol.messages.vote import (
    NodeEndpoint,
    VoteRequest,
    VoteRequestPartitionData,
    VoteResponse,
    VoteResponsePartitionData,
    VoteResponseTopicData,
)
from headwater.quorum import ReplicaKey
from headwater.quorum import model as quorum_model
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def handle(role: ControllerRole, context: Context, request: VoteRequest) -> VoteResponse:
    check_cluster(role, context, Operation.CLUSTER_ACTION)
    if is_other_cluster(role, request.cluster_id):
        return VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = [(topic.topic_name, len(topic.partitions)) for topic in request.topics]
    if asked != [(METADATA_TOPIC, 1)] or request.topics[0].partitions[0].partition_index != 0:
        return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
    partition = request.topics[0].partitions[0]
    code = _refusal(role, request, partition)
    granted = not code and _ask(role, partition)
    raft = role.metadata.raft
    return VoteResponse(
        topics=[
            VoteResponseTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    VoteResponsePartitionData(
                        partition_index=0,
                        error_code=code,
                        leader_id=raft.leader_id,
                        leader_epoch=raft.epoch,
                        vote_granted=granted,
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
    role: ControllerRole, request: VoteRequest, partition: VoteRequestPartitionData
) -> ErrorCode:
    numbers = (partition.replica_id, partition.last_offset, partition.last_offset_epoch)
    # A candidate has entered an epoch of which it has no record yet; a pre-vote has not.
    log_epoch_max = partition.replica_epoch - (0 if partition.pre_vote else 1)
    if min(numbers) < 0 or partition.last_offset_epoch > log_epoch_max:
        return ErrorCode.INVALID_REQUEST
    code = epoch_refusal(role, partition.replica_epoch)
    if not code and is_other_voter(role, request.voter_id, partition.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    return code


def _ask(role: ControllerRole, partition: VoteRequestPartitionData) -> bool:
    reply = role.quorum.on_vote(
        quorum_model.VoteRequest(
            partition.replica_epoch,
            ReplicaKey(partition.replica_id, partition.replica_directory_id),
            OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
            partition.pre_vote,
        )
    )
    return reply.granted
