"""ListGroups: returns the groups that this broker coordinates."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import is_allowed, may
from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError
from headwater.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

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
    # A client that may describe the cluster sees all groups.
    sees_all = broker.authorizer is None or is_allowed(
        broker, context, Operation.DESCRIBE, AclResource.CLUSTER, quiet=True
    )
    may_see = may(broker, context, Operation.DESCRIBE, AclResource.GROUP, quiet=True)
    return gathered(
        listed,
        lambda parts: ListGroupsResponse(
            groups=[
                group for part in parts for group in part if sees_all or may_see(group.group_id)
            ]
        ),
    )
