"""ConsumerGroupDescribe: returns the members of consumer groups, their assignments and targets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.liveness import LIVENESS_TAG, add_liveness
from headwater.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headwater.security.operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.groups.shard import GroupShard


def handle(
    broker: Broker, context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    return gathered(
        [_describe(broker, request, group_id) for group_id in request.group_ids],
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
    )


def _describe(
    broker: Broker, request: ConsumerGroupDescribeRequest, group_id: str
) -> DescribedGroup | Awaitable[DescribedGroup]:
    def look(shard: GroupShard) -> DescribedGroup:
        (described,) = shard.consumer_describe([group_id])
        if request.unknown_tags is not None and LIVENESS_TAG in request.unknown_tags:
            add_liveness(described.members, shard.liveness(group_id, broker.clock.monotonic()))
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = GROUP_OPERATIONS
        return described

    def refused(refusal: ApiError) -> DescribedGroup:
        return DescribedGroup(
            group_id=group_id, error_code=refusal.code, error_message=refusal.message
        )

    try:
        broker.groups.check_consumer_protocol()
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
    except ApiError as refusal:
        return refused(refusal)
    return broker.groups.read(group_id, look, refused)
