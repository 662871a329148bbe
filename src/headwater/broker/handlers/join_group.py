"""JoinGroup: a member joins a classic group; the response waits until all have joined."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.broker.coordinators.groups import client_of
from headwater.errors import ApiError
from headwater.groups.classic.group import join_refused
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    try:
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
        return broker.groups.ask(
            request.group_id,
            JoinGroupResponse,
            lambda shard, token: shard.decide_join(
                token,
                request,
                client=client_of(context),
                version=context.version,
                now=broker.clock.monotonic(),
                now_ms=broker.clock.wall_ms(),
            ),
        )
    except ApiError as refusal:
        return join_refused(refusal.code, member_id=request.member_id, version=context.version)
