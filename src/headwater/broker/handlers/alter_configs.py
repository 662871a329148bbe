"""AlterConfigs: checked here, then forwarded to the controller without what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.config_gate import check_node, check_resource, repeated
from headwater.broker.context import Context
from headwater.broker.controller_handlers.alter_configs import result
from headwater.config.alter import Alteration, AlterOperation
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Resource
from headwater.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
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
    results: dict[Resource, AlterConfigsResourceResponse] = {}
    remaining = AlterConfigsRequest(resources=[], validate_only=request.validate_only)
    for resource, asked in zip(named, request.resources, strict=True):
        try:
            check_resource(broker, resource, named_twice)
            nulls = [config.name for config in asked.configs if config.value is None]
            if nulls:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"expected values, not null, for {', '.join(nulls)}"
                )
            check_node(broker, context, resource, _replacement(broker, resource, asked))
            remaining.resources.append(asked)
        except ApiError as refusal:
            results[resource] = result(resource, refusal)
    if remaining.resources:
        response = await broker.channel.forward(context, remaining)
        assert isinstance(response, AlterConfigsResponse)
        for each in response.responses:
            results[Resource(each.resource_type, each.resource_name)] = each
    return AlterConfigsResponse(responses=[results[resource] for resource in named])


def _replacement(
    broker: Broker, resource: Resource, asked: AlterConfigsResource
) -> list[Alteration]:
    named = {config.name for config in asked.configs}
    alterations = [
        Alteration(config.name, AlterOperation.SET, config.value) for config in asked.configs
    ]
    return alterations + [
        Alteration(name, AlterOperation.DELETE, None)
        for name in broker.image.config(resource)
        if name not in named
    ]
