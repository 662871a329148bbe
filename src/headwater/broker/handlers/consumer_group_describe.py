"""ConsumerGroupDescribe: returns the members of consumer groups, their assignments and targets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, denied, operations
from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.liveness import LIVENESS_TAG, add_liveness
from headwater.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.groups.shard import GroupShard


_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def handle(
    broker: Broker, context: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    return gathered(
        [_describe(broker, context, request, group_id) for group_id in request.group_ids],
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
    )


def _describe(
    broker: Broker, context: Context, request: ConsumerGroupDescribeRequest, group_id: str
) -> DescribedGroup | Awaitable[DescribedGroup]:
    def look(shard: GroupShard) -> DescribedGroup:
        (described,) = shard.consumer_describe([group_id])
        if request.unknown_tags is not None and LIVENESS_TAG in request.unknown_tags:
            add_liveness(described.members, shard.liveness(group_id, broker.clock.monotonic()))
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = operations(
                broker, context, AclResource.GROUP, group_id
            )
        if broker.authorizer is not None and _has_hidden_topics(broker, context, described):
            return refused(ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN_TOPICS))
        return described

    def refused(refusal: ApiError) -> DescribedGroup:
        return DescribedGroup(
            group_id=group_id, error_code=refusal.code, error_message=refusal.message
        )

    try:
        broker.groups.check_consumer_protocol()
        check(broker, context, Operation.DESCRIBE, AclResource.GROUP, group_id)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
    except ApiError as refusal:
        return refused(refusal)
    return broker.groups.read(group_id, look, refused)


def _has_hidden_topics(broker: Broker, context: Context, described: DescribedGroup) -> bool:
    """Returns whether a member is assigned a topic that the client may not know of."""
    names = {
        topic.topic_name
        for member in described.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    return bool(denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, sorted(names)))
