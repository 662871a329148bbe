"""SaslHandshake on a listener without SASL: refused, but advertised as Kafka does.

Tools that guess a broker's version from its APIs (kcl, kminion) take a node without it for 0.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole


def handle(
    node: Broker | ControllerRole, context: Context, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
