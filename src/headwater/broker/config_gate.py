"""Checks of a change of settings that the broker makes before it asks the controller.

A broker's own settings are altered through that broker, and its log levels exist in its memory
only. All other resources go to the controller, unless a request names one twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, check_cluster
from headwater.config import ConfigError, node_config
from headwater.config.alter import Alteration, altered
from headwater.config.catalog import broker_definitions
from headwater.config.validate_broker import LISTENER_KEYS, OF_SECURITY
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Resource, ResourceType
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.context import Context
    from headwater.broker.controller_role import ControllerRole

_KEPT_BY_CONTROLLER = frozenset(
    {ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP}
)


# Settings of anything else belong to the cluster.
_KINDS: dict[int, AclResource] = {
    ResourceType.TOPIC: AclResource.TOPIC,
    ResourceType.GROUP: AclResource.GROUP,
}


def repeated(resources: Iterable[Resource]) -> frozenset[Resource]:
    return frozenset(resource for resource, count in Counter(resources).items() if count > 1)


def check_resource(broker: Broker, resource: Resource, repeated: frozenset[Resource]) -> None:
    """Refuses a resource that the controller cannot handle."""
    if resource in repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a resource may be named only once in a request")
    if resource.type not in _KEPT_BY_CONTROLLER:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"resources of type {resource.type} have no settings"
        )
    if resource.type == ResourceType.BROKER and resource.name:
        check_is_here(broker, resource.name)


def check_node(
    broker: Broker, context: Context, resource: Resource, alterations: Sequence[Alteration]
) -> None:
    """Refuses listeners that this broker cannot open, and keys, certificates and users that it
    cannot use. Only this broker can tell: the addresses and the files are its own."""
    if resource.type != ResourceType.BROKER:
        return
    if not any(name in LISTENER_KEYS or OF_SECURITY.search(name) for name, _, _ in alterations):
        return
    # First, or anybody could learn which files there are.
    check_cluster(broker, context, Operation.ALTER_CONFIGS)
    after = altered(broker.image.config(resource), alterations, broker_definitions())
    layers = broker.config.layers
    try:
        config = node_config(
            layers.static,
            dynamic_broker=after if resource.name else layers.dynamic_broker,
            dynamic_default=layers.dynamic_default if resource.name else after,
        )
        broker.check_change(config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def check_may_alter(role: ControllerRole, context: Context, resource: Resource) -> None:
    """Refuses to alter settings of a resource that are not the client's to alter."""
    kind = _KINDS.get(resource.type)
    if kind is not None:
        check(role, context, Operation.ALTER_CONFIGS, kind, resource.name)
    else:
        check_cluster(role, context, Operation.ALTER_CONFIGS)


def check_is_here(node: Broker | ControllerRole, name: str) -> None:
    """Refuses anything but the id of this broker."""
    try:
        node_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {name!r}, expected its id") from None
    if node_id != node.config.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {node.config.node_id}, expected a request for it, not for {name}",
        )
