"""AlterConfigs: a resource's settings are replaced; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.config_gate import check_resource, repeated
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.metadata import Resource
from headwater.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


async def handle(
    broker: Broker, context: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    named = [Resource(asked.resource_type, asked.resource_name) for asked in request.resources]
    named_twice = repeated(named)
    outcome: dict[Resource, ApiError | None] = {}
    wanted: list[tuple[Resource, list[tuple[str, str | None]]]] = []
    for resource, asked in zip(named, request.resources, strict=True):
        try:
            check_resource(broker, resource, named_twice)
        except ApiError as refusal:
            outcome[resource] = refusal
        else:
            wanted.append((resource, [(config.name, config.value) for config in asked.configs]))
    if wanted:
        try:
            outcome |= await broker.controller.ask(
                lambda controller: controller.decide_alter_configs(
                    wanted, validate_only=request.validate_only
                )
            )
        except ApiError as refusal:
            outcome |= {resource: refusal for resource, _ in wanted}
    return AlterConfigsResponse(
        responses=[_answer(resource, outcome[resource]) for resource in named]
    )


def _answer(resource: Resource, refusal: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=refusal.code if refusal else 0,
        error_message=refusal.message if refusal else None,
        resource_type=resource.type,
        resource_name=resource.name,
    )
