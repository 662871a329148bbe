"""Restricts delegation tokens to clients that have authenticated, and not with a token.

A broker checks that before it forwards a request, because only it knows the client's connection.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol import Message
from headwater.protocol.apis import APIS
from headwater.security.principal import ANONYMOUS
from headwater.security.tokens import SECRET_KEY

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole

NEVER = -1


def check_token_request(node: Broker | ControllerRole, context: Context) -> None:
    """Raises ApiError for a client that must not have tokens."""
    if context.principal.is_token:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if context.origin is not None:
        return  # the broker that the client is connected to has looked at the rest
    listener = context.connection.listener
    protocol = node.config.listener_security_protocol_map.get(listener, "PLAINTEXT")
    if protocol == "PLAINTEXT" or (protocol == "SSL" and context.principal == ANONYMOUS):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def check_tokens_enabled(node: Broker | ControllerRole) -> str:
    """Returns the key that tokens are made with; raises ApiError if there is none."""
    key = node.config.value(SECRET_KEY)
    if not key:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, f"{SECRET_KEY} is not set")
    return str(key)


async def forward(broker: Broker, context: Context, request: Message) -> Message:
    """Passes a request on to the active controller, if the client may have tokens."""
    try:
        check_token_request(broker, context)
    except ApiError as refusal:
        from headwater.broker.controller_role import HANDLERS

        assert request.API is not None
        refuse = import_module(f"{HANDLERS}.{APIS[request.API].module}").refuse
        refused = refuse(context, request, refusal)
        assert isinstance(refused, Message)
        return refused
    return await broker.channel.forward(context, request)
