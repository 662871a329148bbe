"""AlterConfigs: a resource's settings are replaced; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.config_gate import check_may_alter
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
    named = [Resource(asked.resource_type, asked.resource_name) for asked in request.resources]
    outcome: dict[Resource, ApiError | None] = {}
    wanted: list[tuple[Resource, list[tuple[str, str | None]]]] = []
    for resource, asked in zip(named, request.resources, strict=True):
        try:
            check_may_alter(role, context, resource)
            wanted.append((resource, [(config.name, config.value) for config in asked.configs]))
        except ApiError as refusal:
            outcome[resource] = refusal
    try:
        outcome |= await role.controller.ask(
            lambda controller: controller.decide_alter_configs(
                wanted, validate_only=request.validate_only
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return AlterConfigsResponse(
        responses=[result(resource, outcome[resource]) for resource in named]
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
