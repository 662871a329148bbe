"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(broker: Broker, context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    response = ListGroupsResponse(groups=[])
    try:
        for shard in broker.groups.shards():
            shard.check()
            response.groups += shard.machine.list_groups(
                request.states_filter, request.types_filter
            )
    except ApiError as refusal:
        return ListGroupsResponse(error_code=refusal.code)
    return response
