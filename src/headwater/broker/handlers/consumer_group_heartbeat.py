"""ConsumerGroupHeartbeat (KIP-848): joins, keeps and removes a member, and assigns partitions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.coordinators.groups import client_of
from headwater.errors import ApiError
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    try:
        broker.groups.check_consumer_protocol()
        return broker.groups.ask(
            request.group_id,
            ConsumerGroupHeartbeatResponse,
            lambda shard, token: shard.decide_consumer_heartbeat(
                token,
                request,
                client=client_of(context),
                version=context.version,
                now=broker.clock.monotonic(),
                now_ms=broker.clock.wall_ms(),
            ),
        )
    except ApiError as refusal:
        return ConsumerGroupHeartbeatResponse(
            error_code=refusal.code, error_message=refusal.message
        )
