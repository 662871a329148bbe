"""CreatePartitions: topics grow; they never shrink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import may
from headwater.broker.context import Context, check_timeout
from headwater.errors import ApiError
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole

# The version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_REFUSES_SINCE = 3


async def handle(
    role: ControllerRole, context: Context, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    quota = role.throttling.mutations(context, strict_since=_REFUSES_SINCE)
    try:
        check_timeout(request.timeout_ms)
        results = await role.controller.ask(
            lambda controller: controller.decide_create_partitions(
                request,
                take=quota.take,
                may_alter=may(role, context, Operation.ALTER, AclResource.TOPIC),
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return CreatePartitionsResponse(throttle_time_ms=quota.wait_ms(), results=results)


def refuse(
    context: Context, request: CreatePartitionsRequest, refusal: ApiError
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=refusal.code, error_message=refusal.message
            )
            for topic in request.topics
        ]
    )
