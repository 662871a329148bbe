"""One step of an authentication."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int64, Message, ignorable, message, sensitive, since


@message(api=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest(Message):
    """The client's bytes in a step of the authentication."""

    auth_bytes: Annotated[bytes, sensitive]


@message(api=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse(Message):
    """The server's bytes, and the lifetime of the session."""

    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: Annotated[bytes, sensitive] = b""
    session_lifetime_ms: Annotated[Int64, since(1), ignorable] = 0
