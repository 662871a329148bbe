"""DeleteGroups: deletes groups without members, and all their offsets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


async def handle(
    broker: Broker, context: Context, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    answers = await asyncio.gather(
        *(_delete(broker, context, group_id) for group_id in dict.fromkeys(request.groups_names))
    )
    return DeleteGroupsResponse(results=[result for results in answers for result in results])


async def _delete(broker: Broker, context: Context, group_id: str) -> list[DeletableGroupResult]:
    try:
        check(broker, context, Operation.DELETE, AclResource.GROUP, group_id)
        answer = broker.groups.ask(
            group_id,
            DeleteGroupsResponse,
            lambda shard, token: shard.decide_delete_groups(
                token, [group_id], now=broker.clock.monotonic()
            ),
        )
        response = answer if isinstance(answer, DeleteGroupsResponse) else await answer
    except ApiError as refusal:
        return [DeletableGroupResult(group_id=group_id, error_code=refusal.code)]
    return response.results
