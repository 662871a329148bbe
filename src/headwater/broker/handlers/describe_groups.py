"""DescribeGroups: returns the members of classic groups and their assignments."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, operations
from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError
from headwater.protocol.liveness import LIVENESS_TAG, add_liveness
from headwater.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.groups.shard import GroupShard


def handle(
    broker: Broker, context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    return gathered(
        [_describe(broker, context, request, group_id) for group_id in request.groups],
        lambda groups: DescribeGroupsResponse(groups=groups),
    )


def _describe(
    broker: Broker, context: Context, request: DescribeGroupsRequest, group_id: str
) -> DescribedGroup | Awaitable[DescribedGroup]:
    def look(shard: GroupShard) -> DescribedGroup:
        (described,) = shard.describe([group_id], version=context.version)
        if request.unknown_tags is not None and LIVENESS_TAG in request.unknown_tags:
            add_liveness(described.members, shard.liveness(group_id, broker.clock.monotonic()))
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = operations(
                broker, context, AclResource.GROUP, group_id
            )
        return described

    def refused(refusal: ApiError) -> DescribedGroup:
        return DescribedGroup(group_id=group_id, error_code=refusal.code)

    try:
        check(broker, context, Operation.DESCRIBE, AclResource.GROUP, group_id)
    except ApiError as refusal:
        return refused(refusal)
    return broker.groups.read(group_id, look, refused)
