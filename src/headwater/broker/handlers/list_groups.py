"""ListGroups: returns the groups that this broker coordinates."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError
from headwater.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: ListGroupsRequest
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    try:
        listed = broker.groups.read_all(
            lambda shard: shard.list_groups(request.states_filter, request.types_filter)
        )
    except ApiError as refusal:
        return ListGroupsResponse(error_code=refusal.code)
    return gathered(
        listed, lambda parts: ListGroupsResponse(groups=[group for part in parts for group in part])
    )
