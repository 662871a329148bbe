"""Choosing how to authenticate."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Message, message


@message(api=17, versions=(0, 1), flexible=None)
class SaslHandshakeRequest(Message):
    """Chooses a SASL mechanism."""

    mechanism: str


@message(api=17, versions=(0, 1), flexible=None)
class SaslHandshakeResponse(Message):
    """The outcome, and the mechanisms that are enabled."""

    error_code: Int16 = 0
    mechanisms: list[str] = []
