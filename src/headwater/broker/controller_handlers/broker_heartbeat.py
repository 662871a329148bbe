"""BrokerHeartbeat: a broker is alive, and how far it has read the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    try:
        check_cluster(role, context, Operation.CLUSTER_ACTION)
        now = role.clock.monotonic()
        reply = await role.controller.ask(
            lambda controller: controller.decide_heartbeat(request, now)
        )
    except ApiError as refusal:
        return BrokerHeartbeatResponse(error_code=refusal.code)
    if context.origin is None:
        role.controller.watch(request.broker_id, context.connection)
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
