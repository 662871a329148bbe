"""ConsumerGroupHeartbeat (KIP-848): joins, keeps and removes a member, and assigns partitions."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, denied
from headwater.broker.context import Context
from headwater.broker.coordinators.groups import client_of
from headwater.errors import ApiError
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    try:
        broker.groups.check_consumer_protocol()
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
        for name in request.subscribed_topic_names or ():
            check(broker, context, Operation.DESCRIBE, AclResource.TOPIC, name)
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
                describable=None
                if broker.authorizer is None
                else partial(_visible, broker, context),
            ),
        )
    except ApiError as refusal:
        return ConsumerGroupHeartbeatResponse(
            error_code=refusal.code, error_message=refusal.message
        )


def _visible(broker: Broker, context: Context, names: frozenset[str]) -> frozenset[str]:
    """Returns those of the topics a pattern matches that the client may know of."""
    return names - denied(
        broker, context, Operation.DESCRIBE, AclResource.TOPIC, sorted(names), quiet=True
    )
