"""SaslHandshake (key 17)."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Message, message


@message(api=17, versions=(0, 1), flexible=None)
class SaslHandshakeRequest(Message):
    """The message `SaslHandshakeRequest`."""

    mechanism: str


@message(api=17, versions=(0, 1), flexible=None)
class SaslHandshakeResponse(Message):
    """The message `SaslHandshakeResponse`."""

    error_code: Int16 = 0
    mechanisms: list[str] = []
