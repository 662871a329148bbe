"""DescribeConfigs: every setting of a resource, its value, and where that value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check, check_cluster
from headwater.broker.config_gate import check_is_here
from headwater.broker.context import Context
from headwater.broker.node_log import log_levels
from headwater.config.describe import (
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import CLUSTER_DEFAULT, Resource, ResourceType
from headwater.metadata.topic_names import check as check_topic_name
from headwater.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole

_TYPES = frozenset(
    {
        ResourceType.TOPIC,
        ResourceType.BROKER,
        ResourceType.BROKER_LOGGER,
        ResourceType.CLIENT_METRICS,
        ResourceType.GROUP,
    }
)


def handle(
    node: Broker | ControllerRole, context: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse(results=[])
    unknown = [r.resource_type for r in request.resources if r.resource_type not in _TYPES]
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        response.results.append(result)
        try:
            if unknown:
                # Kafka, too, refuses the whole request for one resource that it cannot place.
                raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {unknown[0]}")
            _check_access(node, context, resource)
            entries = _describe(node, resource)
        except ApiError as refusal:
            result.error_code = refusal.code
            result.error_message = refusal.message or ""
            continue
        keys = resource.configuration_keys
        # An empty list of keys means all, as it does with Kafka from 2.5 on.
        wanted = set(keys) if keys else None
        result.configs = [
            _entry(entry, request) for entry in entries if wanted is None or entry.name in wanted
        ]
    return response


def _check_access(
    node: Broker | ControllerRole, context: Context, resource: DescribeConfigsResource
) -> None:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            check(node, context, Operation.DESCRIBE_CONFIGS, AclResource.TOPIC, name)
        case ResourceType.GROUP:
            check(node, context, Operation.DESCRIBE_CONFIGS, AclResource.GROUP, name)
        case _:
            check_cluster(node, context, Operation.DESCRIBE_CONFIGS)


def _describe(
    node: Broker | ControllerRole, resource: DescribeConfigsResource
) -> list[DescribedConfig]:
    image, layers, name = node.image, node.config.layers, resource.resource_name
    overrides = image.config(Resource(resource.resource_type, name))
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # Kafka has no words for it
            return describe_topic(overrides, layers, node.config.topic_defaults)
        case ResourceType.BROKER:
            if not name:
                return describe_broker_defaults(image.config(CLUSTER_DEFAULT))
            check_is_here(node, name)
            return describe_broker(layers)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a broker logger needs a broker id")
            check_is_here(node, name)
            return describe_loggers(log_levels(node))
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a subscription needs a name")
            return describe_client_metrics(overrides)
        case ResourceType.GROUP:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a group needs an id")
            return describe_group(overrides, layers)
    raise AssertionError(f"resource type {resource.resource_type}")


def _entry(
    entry: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source)
            for s in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
