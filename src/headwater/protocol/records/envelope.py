"""Headers of messages, and the principal of a forwarded request."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, message, never_compact


@message(versions=(1, 2), flexible=2)
class RequestHeader(Message):
    """The start of a request. The hot path reads it by hand, in `frame`."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: Annotated[str | None, never_compact]


@message(versions=(0, 1), flexible=1)
class ResponseHeader(Message):
    """The start of a response."""

    correlation_id: Int32


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData(Message):
    """The principal of a forwarded request."""

    type: str
    name: str
    token_authenticated: bool
