"""The cluster: its id, its brokers, its controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.admin.results import check
from headwater.model import NO_NODE
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest, EndpointType
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headwater.security.operations import operation_names

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_FENCED_SINCE = 2


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients reach it, or a controller. A fenced broker is registered but serves no
    clients."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster. With KRaft, `controller_id` is a broker that forwards requests to the controller;
    `describe_quorum` tells which node leads it. A client of controllers (`bootstrap_controllers`)
    gets the controllers as `nodes`, and the active one as `controller_id`."""

    id: str | None
    controller_id: int | None
    nodes: tuple[Node, ...]
    operations: frozenset[str] | None = None


async def describe_cluster(
    admin: Admin,
    *,
    fenced: bool = False,
    operations: bool = False,
    timeout_ms: int | None = None,
) -> ClusterDescription:
    """Returns the cluster's id, its controller and its brokers, with `fenced` also those that are
    fenced. Asked of controllers, it returns these instead of brokers."""
    deadline = admin._router.deadline(timeout_ms)
    asks_controllers = admin.config.asks_controllers
    if not await admin._router.serves(ApiKey.DESCRIBE_CLUSTER, deadline):
        return await _from_metadata(admin, deadline)
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=EndpointType.CONTROLLER if asks_controllers else EndpointType.BROKER,
        include_fenced_brokers=fenced and not asks_controllers,
    )
    answer = await admin._router.anyone(
        request,
        deadline=deadline,
        at_least=_FENCED_SINCE if request.include_fenced_brokers else None,
    )
    check(answer.error_code, "the cluster", answer.error_message)
    return ClusterDescription(
        id=answer.cluster_id,
        controller_id=None if answer.controller_id == NO_NODE else answer.controller_id,
        nodes=tuple(
            Node(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
            for each in sorted(answer.brokers, key=lambda each: each.broker_id)
        ),
        operations=operation_names(answer.cluster_authorized_operations),
    )


async def _from_metadata(admin: Admin, deadline: float) -> ClusterDescription:
    """Reads the response of brokers before 2.8."""
    answer = await admin._router.anyone(
        MetadataRequest(topics=[], allow_auto_topic_creation=False), deadline=deadline
    )
    return ClusterDescription(
        id=answer.cluster_id,
        controller_id=None if answer.controller_id == NO_NODE else answer.controller_id,
        nodes=tuple(
            Node(each.node_id, each.host, each.port, each.rack)
            for each in sorted(answer.brokers, key=lambda each: each.node_id)
        ),
    )


async def unregister_broker(admin: Admin, node_id: int, *, timeout_ms: int | None = None) -> None:
    """Removes a broker that is gone for good from the cluster's metadata."""
    answer = await admin._router.controller(
        UnregisterBrokerRequest(broker_id=node_id), timeout_ms=timeout_ms
    )
    check(answer.error_code, f"broker {node_id}", answer.error_message)
