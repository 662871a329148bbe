"""SyncGroup: the leader sends the assignments, and each member receives its own."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.groups.classic.group import sync_refused
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    try:
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
        return broker.groups.ask(
            request.group_id,
            SyncGroupResponse,
            lambda shard, token: shard.decide_sync(
                token,
                request,
                version=context.version,
                now=broker.clock.monotonic(),
                now_ms=broker.clock.wall_ms(),
            ),
        )
    except ApiError as refusal:
        return sync_refused(refusal.code)
