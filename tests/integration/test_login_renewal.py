"""A node logs in again on a connection before its login expires."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from headwater.io import Host
from headwater.net.peer import as_is, connect
from headwater.net.peer.errors import Disconnected
from headwater.net.peer.security import Login, PeerSecurity
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.support.fake_broker import FakeBroker, story


@story
async def test_requests_pass_while_a_token_is_awaited_and_an_endless_login_is_the_last() -> None:
    lifetimes = [50, 0]
    asked = 0
    renewing, come = asyncio.Event(), asyncio.Event()

    async def token(_: Host) -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            renewing.set()
            await come.wait()
        return "a.b.c"

    async with FakeBroker() as broker:
        broker.answers[ApiKey.SASL_HANDSHAKE] = lambda _: SaslHandshakeResponse()
        broker.answers[ApiKey.SASL_AUTHENTICATE] = lambda _: SaslAuthenticateResponse(
            session_lifetime_ms=lifetimes.pop(0)
        )
        security: PeerSecurity | None = None

        def current() -> PeerSecurity | None:
            return security

        security = PeerSecurity(login=Login("OAUTHBEARER", token=token), renewed_by=current)
        connection = await connect(
            Host.system(),
            broker.address,
            node_id=1,
            client_id="node",
            timeout_ms=20_000,
            request_timeout_ms=20_000,
            as_error=as_is,
            security=security,
        )
        assert connection.trusted_until != inf
        await renewing.wait()
        assert (await connection.ask(MetadataRequest())).cluster_id == "fake"
        come.set()
        assert connection.renewal is not None
        await connection.renewal
        assert connection.is_open
        assert connection.trusted_until == inf
        assert (asked, lifetimes) == (2, [])
        connection.close()


@story
async def test_a_login_is_renewed_with_the_new_password_but_not_as_another_user() -> None:
    said: list[bytes] = []
    renewed = asyncio.Event()

    def answer(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        said.append(request.auth_bytes)
        if len(said) == 2:
            renewed.set()
        return SaslAuthenticateResponse(session_lifetime_ms=50)

    def login(user: str, password: str) -> PeerSecurity:
        return PeerSecurity(login=Login("PLAIN", user, password), renewed_by=lambda: security)

    security = login("node", "one")
    async with FakeBroker() as broker:
        broker.answers[ApiKey.SASL_HANDSHAKE] = lambda _: SaslHandshakeResponse()
        broker.answers[ApiKey.SASL_AUTHENTICATE] = answer
        connection = await connect(
            Host.system(),
            broker.address,
            node_id=1,
            client_id="node",
            timeout_ms=20_000,
            request_timeout_ms=20_000,
            as_error=as_is,
            security=security,
        )
        security = login("node", "two")
        await renewed.wait()
        assert said[:2] == [b"\0node\0one", b"\0node\0two"]
        assert connection.is_open
        security = login("next", "three")

        async def asks_until_it_ends() -> None:
            while True:
                await connection.ask(MetadataRequest())

        with pytest.raises(Disconnected, match="another user"):
            await asks_until_it_ends()
        assert not any(b"next" in each for each in said)
