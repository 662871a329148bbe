"""AssignReplicasToDirs: the directories in which a broker keeps its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    try:
        check_cluster(role, context, Operation.CLUSTER_ACTION)
        directories = await role.controller.ask(
            lambda controller: controller.decide_assign_replicas_to_dirs(request)
        )
    except ApiError as refusal:
        return AssignReplicasToDirsResponse(error_code=refusal.code)
    return AssignReplicasToDirsResponse(directories=directories)
