"""DescribeAcls: answered with SECURITY_DISABLED, as by every broker without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.net.connection import CloseConnection
from headwater.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole

_UNKNOWN = 0


def handle(
    node: Broker | ControllerRole, context: Context, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    if _UNKNOWN in (
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ):
        # Kafka takes such a filter for a request that cannot be read.
        raise CloseConnection("DescribeAcls with an UNKNOWN element in its filter")
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="no authorizer is configured"
    )
