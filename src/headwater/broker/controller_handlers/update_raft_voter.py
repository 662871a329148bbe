"""UpdateRaftVoter: a voter tells the leader where it is and what it supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.controller_handlers.quorum_requests import (
    epoch_refusal,
    is_other_cluster,
    node_endpoints,
)
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from headwater.quorum import ReplicaKey, VoterEndpoint
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    check_cluster(role, context, Operation.CLUSTER_ACTION)
    code = await _update(role, request)
    raft = role.metadata.raft
    leader = CurrentLeader(leader_id=raft.leader_id, leader_epoch=raft.epoch)
    for at in node_endpoints(role):
        leader.host, leader.port = at.host, at.port
    return UpdateRaftVoterResponse(error_code=code, current_leader=leader)


async def _update(role: ControllerRole, request: UpdateRaftVoterRequest) -> ErrorCode:
    raft = role.metadata.raft
    if is_other_cluster(role, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.current_leader_epoch > raft.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch_refusal(role, request.current_leader_epoch):
        return ErrorCode.FENCED_LEADER_EPOCH
    if not role.metadata.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    feature = request.kraft_version_feature
    try:
        await role.voter_changes.update(
            ReplicaKey(request.voter_id, request.voter_directory_id),
            [VoterEndpoint(at.name, at.host, at.port) for at in request.listeners],
            (feature.min_supported_version, feature.max_supported_version),
        )
    except ApiError as refusal:
        return refusal.code
    return ErrorCode.NONE
