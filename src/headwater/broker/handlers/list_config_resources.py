"""ListConfigResources: the things that can have settings (KIP-1142)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.metadata import ResourceType
from headwater.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_TYPES = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(
    broker: Broker, context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    check_cluster(broker, context, Operation.DESCRIBE_CONFIGS)
    if context.version == 0:
        # Version 0 was the list of client metrics subscriptions only.
        wanted: set[int] = {ResourceType.CLIENT_METRICS}
    else:
        wanted = set(request.resource_types) or set(_TYPES)
    if not wanted <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = broker.image
    names: dict[int, list[str]] = {
        ResourceType.TOPIC: list(image.topics),
        ResourceType.BROKER: [str(node) for node in image.brokers],
        ResourceType.BROKER_LOGGER: [str(node) for node in image.brokers],
        ResourceType.CLIENT_METRICS: [],
        ResourceType.GROUP: [],
    }
    for resource in image.configs:
        if resource.type in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
            names[resource.type].append(resource.name)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _TYPES
            if kind in wanted
            for name in names[kind]
        ]
    )
