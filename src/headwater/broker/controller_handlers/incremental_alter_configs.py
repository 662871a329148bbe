"""IncrementalAlterConfigs: single settings are set, removed, or as lists grow and shrink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.config_gate import check_may_alter, repeated
from headwater.broker.context import Context
from headwater.broker.node_log import alter_log_levels
from headwater.config.alter import Alteration, AlterOperation
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Resource, ResourceType
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    named = [Resource(asked.resource_type, asked.resource_name) for asked in request.resources]
    named_twice = repeated(named)
    outcome: dict[Resource, ApiError | None] = {}
    changes: list[tuple[Resource, list[Alteration]]] = []
    for resource, asked in zip(named, request.resources, strict=True):
        try:
            wanted = alterations(asked.configs)
            if resource.type == ResourceType.BROKER_LOGGER and resource not in named_twice:
                check_cluster(role, context, Operation.CLUSTER_ACTION)
                alter_log_levels(role, resource.name, wanted, validate_only=request.validate_only)
                outcome[resource] = None
            else:
                check_may_alter(role, context, resource)
                changes.append((resource, wanted))
        except ApiError as refusal:
            outcome[resource] = refusal
    if changes:
        try:
            outcome |= await role.controller.ask(
                lambda controller: controller.decide_incremental_alter_configs(
                    changes, validate_only=request.validate_only
                )
            )
        except ApiError as refusal:
            outcome |= {resource: refusal for resource, _ in changes}
    return IncrementalAlterConfigsResponse(
        responses=[result(resource, outcome[resource]) for resource in named]
    )


def refuse(
    context: Context, request: IncrementalAlterConfigsRequest, refusal: ApiError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            result(Resource(asked.resource_type, asked.resource_name), refusal)
            for asked in request.resources
        ]
    )


def alterations(configs: list[AlterableConfig]) -> list[Alteration]:
    return [
        Alteration(config.name, _operation(config.config_operation), config.value)
        for config in configs
    ]


def _operation(number: int) -> AlterOperation:
    try:
        return AlterOperation(number)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"operation {number}, expected 0 (set), 1 (delete), 2 (append) or 3 (subtract)",
        ) from None


def result(resource: Resource, refusal: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=refusal.code if refusal else 0,
        error_message=refusal.message if refusal else None,
        resource_type=resource.type,
        resource_name=resource.name,
    )
