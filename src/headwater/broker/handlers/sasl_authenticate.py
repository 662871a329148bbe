"""SaslAuthenticate where no login is under way: refused, but advertised as Kafka does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole


def handle(
    node: Broker | ControllerRole, context: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    protocol = node.config.protocol_of(context.connection.listener)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication"
        if protocol.startswith("SASL")
        else "this listener has no SASL; connect without a login",
    )
