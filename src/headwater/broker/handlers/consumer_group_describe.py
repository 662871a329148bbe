"""ConsumerGroupDescribe: members of the newer groups, what they have and what they shall have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headwater.protocol.signs import SIGNS_TAG, add_signs
from headwater.security.operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    response = ConsumerGroupDescribeResponse(groups=[])
    asked_for_signs = request.unknown_tags is not None and SIGNS_TAG in request.unknown_tags
    for group_id in request.group_ids:
        try:
            broker.groups.check_consumer_protocol()
            if not group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            shard = broker.groups.shard(group_id)
        except ApiError as refusal:
            response.groups.append(
                DescribedGroup(
                    group_id=group_id, error_code=refusal.code, error_message=refusal.message
                )
            )
            continue
        (described,) = shard.machine.consumer_describe([group_id])
        if asked_for_signs:
            add_signs(described.members, shard.machine.signs(group_id, broker.clock.monotonic()))
        response.groups.append(described)
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response
