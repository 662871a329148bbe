"""DescribeGroups: members of classic groups and what they were assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headwater.protocol.signs import SIGNS_TAG, add_signs
from headwater.security.operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse(groups=[])
    asked_for_signs = request.unknown_tags is not None and SIGNS_TAG in request.unknown_tags
    for group_id in request.groups:
        try:
            shard = broker.groups.shard(group_id)
        except ApiError as refusal:
            response.groups.append(DescribedGroup(group_id=group_id, error_code=refusal.code))
            continue
        (described,) = shard.machine.describe([group_id], version=context.version)
        if asked_for_signs:
            add_signs(described.members, shard.machine.signs(group_id, broker.clock.monotonic()))
        response.groups.append(described)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
