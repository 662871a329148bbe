"""LeaveGroup: removes members by member id or instance id."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    try:
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
        return broker.groups.ask(
            request.group_id,
            LeaveGroupResponse,
            lambda shard, token: shard.decide_leave(
                token,
                request,
                version=context.version,
                now=broker.clock.monotonic(),
                now_ms=broker.clock.wall_ms(),
            ),
        )
    except ApiError as refusal:
        return LeaveGroupResponse(error_code=refusal.code)
