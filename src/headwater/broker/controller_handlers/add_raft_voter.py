"""AddRaftVoter: a controller becomes one of the voters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.controller_handlers.quorum_requests import is_other_cluster
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from headwater.quorum import ReplicaKey, VoterEndpoint
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    try:
        check_cluster(role, context, Operation.ALTER)
    except ApiError as refusal:
        return refuse(context, request, refusal)
    if is_other_cluster(role, request.cluster_id):
        return AddRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID,
            error_message=f"this is cluster {role.cluster_id}, not {request.cluster_id}",
        )
    try:
        await role.voter_changes.add(
            ReplicaKey(request.voter_id, request.voter_directory_id),
            [VoterEndpoint(at.name, at.host, at.port) for at in request.listeners],
            timeout_ms=request.timeout_ms,
            ack_when_committed=request.ack_when_committed,
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return AddRaftVoterResponse(error_message=None)


def refuse(
    context: Context, request: AddRaftVoterRequest, refusal: ApiError
) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
