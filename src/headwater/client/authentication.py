"""Proving who we are on a new connection: SASL in frames of Kafka's protocol."""

from __future__ import annotations

from random import Random

from headwater.client.connection import Connection
from headwater.client.errors import (
    AuthenticationFailed,
    UnsupportedVersion,
    error_for,
)
from headwater.client.security import Login
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.security.sasl.client import SaslFailed

_HANDSHAKE_VERSION = 1  # before it the exchange had no frames of Kafka's around it


async def authenticate(
    connection: Connection, login: Login, random: Random, timeout_ms: int
) -> int:
    """For how many ms the broker believes it, 0: for as long as the connection lasts."""
    who = f"{connection.address}, {login.mechanism}"
    if login.username:
        who += f" as {login.username!r}"
    if (connection.version(ApiKey.SASL_HANDSHAKE) or 0) < _HANDSHAKE_VERSION:
        raise UnsupportedVersion(f"{connection.address} is too old for SASL as it is done here")
    client = await login.begin(random)
    chosen = await connection.exchange(
        SaslHandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION, timeout_ms
    )
    if chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        there = ", ".join(chosen.mechanisms) or "none"
        raise error_for(chosen.error_code, who, f"this listener offers {there}")
    if chosen.error_code:
        raise error_for(chosen.error_code, who)
    said: bytes | None = client.first()
    while True:
        assert said is not None
        answer = await connection.ask(
            SaslAuthenticateRequest(auth_bytes=said), timeout_ms=timeout_ms
        )
        if answer.error_code:
            raise error_for(answer.error_code, who, answer.error_message)
        try:
            said = client.answer(answer.auth_bytes)
        except SaslFailed as error:
            raise AuthenticationFailed(f"{who}: the broker is not to be trusted: {error}") from None
        if said is None:
            return int(answer.session_lifetime_ms)
