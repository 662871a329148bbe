"""Heartbeat: extends the session of a classic member, and tells it of rebalances."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: HeartbeatRequest
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    try:
        return broker.groups.ask(
            request.group_id,
            HeartbeatResponse,
            lambda shard, token: shard.decide_heartbeat(
                token, request, now=broker.clock.monotonic()
            ),
        )
    except ApiError as refusal:
        return HeartbeatResponse(error_code=refusal.code)
