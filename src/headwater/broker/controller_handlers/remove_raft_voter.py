"""RemoveRaftVoter: a node is no longer one of the voters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.controller_handlers.quorum_requests import is_other_cluster
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from headwater.quorum import ReplicaKey
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    try:
        check_cluster(role, context, Operation.ALTER)
    except ApiError as refusal:
        return refuse(context, request, refusal)
    if is_other_cluster(role, request.cluster_id):
        return RemoveRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID,
            error_message=f"this is cluster {role.cluster_id}, not {request.cluster_id}",
        )
    try:
        await role.voter_changes.remove(ReplicaKey(request.voter_id, request.voter_directory_id))
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return RemoveRaftVoterResponse(error_message=None)


def refuse(
    context: Context, request: RemoveRaftVoterRequest, refusal: ApiError
) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
