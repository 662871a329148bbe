"""AlterPartition: a leader proposes in-sync replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    try:
        check_cluster(role, context, Operation.CLUSTER_ACTION)
        topics = await role.controller.ask(
            lambda controller: controller.decide_alter_partition(request)
        )
    except ApiError as refusal:
        return AlterPartitionResponse(error_code=refusal.code)
    return AlterPartitionResponse(topics=topics)
