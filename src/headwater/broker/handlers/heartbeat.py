"""Heartbeat: extends the session of a classic member, and tells it of rebalances."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: HeartbeatRequest
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    try:
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
        return broker.groups.ask(
            request.group_id,
            HeartbeatResponse,
            lambda shard, token: shard.decide_heartbeat(
                token, request, now=broker.clock.monotonic()
            ),
        )
    except ApiError as refusal:
        return HeartbeatResponse(error_code=refusal.code)
