"""DeleteTopics: topics go by name or by id, each for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import may_in_cluster
from headwater.broker.context import Context, check_timeout
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole

# The version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_REFUSES_SINCE = 5


async def handle(
    role: ControllerRole, context: Context, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    quota = role.throttling.mutations(context, strict_since=_REFUSES_SINCE)
    try:
        if not role.config.delete_topic_enable:
            raise ApiError(
                # The code came with version 3.
                ErrorCode.TOPIC_DELETION_DISABLED
                if context.version >= 3
                else ErrorCode.INVALID_REQUEST,
                "delete.topic.enable is false",
            )
        check_timeout(request.timeout_ms)
        results = await role.controller.ask(
            lambda controller: controller.decide_delete_topics(
                request,
                take=quota.take,
                may_delete=may_in_cluster(role, context, Operation.DELETE, AclResource.TOPIC),
                may_describe=may_in_cluster(
                    role, context, Operation.DESCRIBE, AclResource.TOPIC, through=Operation.DELETE
                ),
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return DeleteTopicsResponse(throttle_time_ms=quota.wait_ms(), responses=results)


def refuse(
    context: Context, request: DeleteTopicsRequest, refusal: ApiError
) -> DeleteTopicsResponse:
    results = [DeletableTopicResult(name=name) for name in request.topic_names]
    results += [DeletableTopicResult(name=t.name, topic_id=t.topic_id) for t in request.topics]
    for result in results:
        result.error_code = refusal.code
        result.error_message = refusal.message
    return DeleteTopicsResponse(responses=results)
