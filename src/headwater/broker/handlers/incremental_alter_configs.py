"""IncrementalAlterConfigs: checked here, then forwarded without what was refused.

Levels of loggers are in the memory of each broker and are set here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.config_gate import check_node, check_resource, repeated
from headwater.broker.context import Context
from headwater.broker.controller_handlers.incremental_alter_configs import alterations, result
from headwater.broker.node_log import alter_log_levels
from headwater.errors import ApiError
from headwater.metadata import Resource, ResourceType
from headwater.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


async def handle(
    broker: Broker, context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    named = [Resource(asked.resource_type, asked.resource_name) for asked in request.resources]
    named_twice = repeated(named)
    results: dict[Resource, AlterConfigsResourceResponse] = {}
    remaining = IncrementalAlterConfigsRequest(resources=[], validate_only=request.validate_only)
    for resource, asked in zip(named, request.resources, strict=True):
        try:
            wanted = alterations(asked.configs)
            if resource.type == ResourceType.BROKER_LOGGER and resource not in named_twice:
                check_cluster(broker, context, Operation.ALTER_CONFIGS)
                alter_log_levels(broker, resource.name, wanted, validate_only=request.validate_only)
                results[resource] = result(resource, None)
            else:
                check_resource(broker, resource, named_twice)
                check_node(broker, context, resource, wanted)
                remaining.resources.append(asked)
        except ApiError as refusal:
            results[resource] = result(resource, refusal)
    if remaining.resources:
        response = await broker.channel.forward(context, remaining)
        assert isinstance(response, IncrementalAlterConfigsResponse)
        for each in response.responses:
            results[Resource(each.resource_type, each.resource_name)] = each
    return IncrementalAlterConfigsResponse(responses=[results[resource] for resource in named])
