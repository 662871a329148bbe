"""DescribeCluster on a controller: the controllers of the cluster (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster, cluster_operations
from headwater.broker.context import Context
from headwater.broker.handlers.describe_cluster import BROKERS, CONTROLLERS
from headwater.errors import ErrorCode
from headwater.model import NO_NODE
from headwater.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.security.operations import NOT_ASKED, Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def handle(
    role: ControllerRole, context: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if context.version == 0:
        return DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="version 0 asks for brokers, and this is a controller",
        )
    if request.endpoint_type != CONTROLLERS:
        known = request.endpoint_type == BROKERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="the request was sent to a controller and asks for brokers"
            if known
            else f"endpoint type {request.endpoint_type}; 1 is brokers, 2 is controllers",
        )
    # Unlike on brokers, as in Kafka.
    check_cluster(role, context, Operation.ALTER)
    leader = role.metadata.leader
    listener = context.connection.listener
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=role.cluster_id,
        controller_id=NO_NODE if leader is None else leader.node_id,
        cluster_authorized_operations=cluster_operations(role, context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        brokers=[
            DescribeClusterBroker(broker_id=controller.id, host=at.host, port=at.port)
            for controller in role.image.controllers.values()
            for at in controller.endpoints
            if at.name == listener
        ],
    )
