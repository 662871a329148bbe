"""AlterConfigs: a resource's settings are replaced; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.metadata import Resource
from headwater.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    wanted = [
        (
            Resource(asked.resource_type, asked.resource_name),
            [(config.name, config.value) for config in asked.configs],
        )
        for asked in request.resources
    ]
    try:
        outcome = await role.controller.ask(
            lambda controller: controller.decide_alter_configs(
                wanted, validate_only=request.validate_only
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return AlterConfigsResponse(
        responses=[result(resource, outcome[resource]) for resource, _ in wanted]
    )


def refuse(
    context: Context, request: AlterConfigsRequest, refusal: ApiError
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            result(Resource(asked.resource_type, asked.resource_name), refusal)
            for asked in request.resources
        ]
    )


def result(resource: Resource, refusal: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=refusal.code if refusal else 0,
        error_message=refusal.message if refusal else None,
        resource_type=resource.type,
        resource_name=resource.name,
    )
