"""Describing the nodes of the cluster."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, message, since


class EndpointType(IntEnum):
    """The nodes to describe."""

    BROKER = 1
    CONTROLLER = 2


@message(api=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest(Message):
    """Describe the brokers, or the controllers."""

    include_cluster_authorized_operations: bool
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[bool, since(2)] = False


@message(api=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse(Message):
    """The nodes."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648


class DescribeClusterBroker(Message):
    """One of the `brokers` of `DescribeClusterResponse`."""

    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: Annotated[bool, since(2)] = False
