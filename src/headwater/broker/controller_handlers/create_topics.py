"""CreateTopics: each topic of the request is made, or refused, for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import may, may_in_cluster
from headwater.broker.context import Context, check_timeout
from headwater.errors import ApiError
from headwater.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole

# The version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_REFUSES_SINCE = 6


async def handle(
    role: ControllerRole, context: Context, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    quota = role.throttling.mutations(context, strict_since=_REFUSES_SINCE)
    try:
        check_timeout(request.timeout_ms)
        results = await role.controller.ask(
            lambda controller: controller.decide_create_topics(
                request,
                take=quota.take,
                may_create=may_in_cluster(role, context, Operation.CREATE, AclResource.TOPIC),
                may_describe=may(role, context, Operation.DESCRIBE_CONFIGS, AclResource.TOPIC),
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return CreateTopicsResponse(throttle_time_ms=quota.wait_ms(), topics=results)


def refuse(
    context: Context, request: CreateTopicsRequest, refusal: ApiError
) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=refusal.code, error_message=refusal.message
            )
            for topic in request.topics
        ]
    )
