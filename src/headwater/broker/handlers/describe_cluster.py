"""DescribeCluster: the nodes of the cluster, as brokers or as controllers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import cluster_operations
from headwater.broker.context import Context
from headwater.broker.request_trace import follow, question_of
from headwater.errors import ErrorCode
from headwater.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.security.operations import NOT_ASKED

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

BROKERS = 1
CONTROLLERS = 2


def handle(
    broker: Broker, context: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse | Awaitable[DescribeClusterResponse]:
    question = question_of(request)
    if question is not None:
        return follow(broker, context, question)
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="the request was sent to a broker and asks for controllers"
            if known
            else f"endpoint type {request.endpoint_type}; 1 is brokers, 2 is controllers",
            endpoint_type=BROKERS,
        )
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id(broker.endpoints(context)),
        cluster_authorized_operations=cluster_operations(broker, context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        brokers=[
            DescribeClusterBroker(
                broker_id=at.id, host=at.host, port=at.port, rack=at.rack, is_fenced=at.fenced
            )
            for at in broker.endpoints(context, fenced=request.include_fenced_brokers)
        ],
    )
