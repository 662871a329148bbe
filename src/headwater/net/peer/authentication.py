"""SASL on a new connection, in frames of Kafka's protocol."""

from __future__ import annotations

from typing import Any

from headwater.errors import ErrorCode
from headwater.net.peer.connection import PeerConnection
from headwater.net.peer.errors import AuthenticationFailed, Refused, UnsupportedVersion
from headwater.net.peer.security import Login
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.security.sasl.client import SaslClient, SaslFailed

_HANDSHAKE_VERSION = 1  # version 0 exchanges tokens without Kafka's framing


async def authenticate(
    connection: PeerConnection[Any], login: Login, client: SaslClient, timeout_ms: int
) -> int:
    """Logs in with the exchange that `login` began; returns the lifetime of the session in ms, 0 if
    it does not expire."""
    who = f"{connection.address}, {login.mechanism}"
    if login.username:
        who += f" as {login.username!r}"
    if (connection.version(ApiKey.SASL_HANDSHAKE) or 0) < _HANDSHAKE_VERSION:
        raise UnsupportedVersion(
            f"{connection.address} does not serve SaslHandshake version {_HANDSHAKE_VERSION}"
        )
    chosen = await connection.exchange(
        SaslHandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION, timeout_ms
    )
    if chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(chosen.mechanisms) or "none"
        raise Refused(chosen.error_code, who, f"this listener offers {offered}")
    if chosen.error_code:
        raise Refused(chosen.error_code, who)
    token: bytes | None = client.first()
    while True:
        assert token is not None
        response = await connection.ask(
            SaslAuthenticateRequest(auth_bytes=token), timeout_ms=timeout_ms
        )
        if response.error_code:
            raise Refused(response.error_code, who, response.error_message)
        try:
            token = client.answer(response.auth_bytes)
        except SaslFailed as error:
            raise AuthenticationFailed(
                f"{who}: the broker could not prove its identity: {error}"
            ) from None
        if token is None:
            return int(response.session_lifetime_ms)
