"""Restricts requests about rules to those that name no unknown element.

Kafka takes a request with an UNKNOWN element for one that cannot be read, and ends the connection.
The broker that the client is connected to does that, before it forwards the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.net.connection import CloseConnection
from headwater.protocol import Message
from headwater.protocol.messages.create_acls import CreateAclsRequest
from headwater.protocol.messages.delete_acls import DeleteAclsRequest

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

UNKNOWN = 0  # other numbers that nobody knows are refused, or match nothing


async def forward(broker: Broker, context: Context, request: Message) -> Message:
    """Passes a request on to the active controller."""
    assert isinstance(request, CreateAclsRequest | DeleteAclsRequest)
    check_elements(context, request)
    return await broker.channel.forward(context, request)


def check_elements(context: Context, request: CreateAclsRequest | DeleteAclsRequest) -> None:
    """Raises CloseConnection for an UNKNOWN element; a forwarded request was looked at before."""
    if context.origin is not None:
        return
    if isinstance(request, CreateAclsRequest):
        elements = [
            (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
            for each in request.creations
        ]
    else:
        elements = [
            (
                each.resource_type_filter,
                each.pattern_type_filter,
                each.operation,
                each.permission_type,
            )
            for each in request.filters
        ]
    if any(UNKNOWN in each for each in elements):
        raise CloseConnection(f"{type(request).__name__} with an UNKNOWN element")
