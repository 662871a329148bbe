"""Envelope (key 58)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Message, message, sensitive


@message(api=58, versions=(0, 0), flexible=0)
class EnvelopeRequest(Message):
    """The message `EnvelopeRequest`."""

    request_data: Annotated[bytes, sensitive]
    request_principal: bytes | None
    client_host_address: bytes


@message(api=58, versions=(0, 0), flexible=0)
class EnvelopeResponse(Message):
    """The message `EnvelopeResponse`."""

    response_data: Annotated[bytes | None, sensitive] = None
    error_code: Int16 = 0
