"""A request that a broker hands on to the controller for its client."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Message, message, sensitive


@message(api=58, versions=(0, 0), flexible=0)
class EnvelopeRequest(Message):
    """Another request, with the principal and address of its client."""

    request_data: Annotated[bytes, sensitive]
    request_principal: bytes | None
    client_host_address: bytes


@message(api=58, versions=(0, 0), flexible=0)
class EnvelopeResponse(Message):
    """The answer to the inner request."""

    response_data: Annotated[bytes | None, sensitive] = None
    error_code: Int16 = 0
