"""Tokens and keys from a server on loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from headwater.client.config import ClientConfig
from headwater.client.errors import ConfigError
from headwater.client.security import security_of
from headwater.io import Host
from headwater.io.clock import SystemClock
from headwater.net.oauth.keys import JwksKeeper, JwksSettings
from headwater.net.peer.errors import AuthenticationFailed
from headwater.observability import Log
from headwater.security.oauth import FILES_VARIABLE, URLS_VARIABLE
from tests.support.jwts import jwk, jwks, rsa_key, signed
from tests.support.token_server import TokenServer


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _allowed(server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URLS_VARIABLE, f"{server.url()}, file://{tmp_path}/token")
    monkeypatch.setenv(FILES_VARIABLE, f"{tmp_path}/key.pem,{tmp_path}/assertion")


def client(url: str, **settings: Any) -> Any:
    """The source of a client's tokens."""
    known: dict[str, Any] = {
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": "hidden",
        "sasl_login_retry_backoff_ms": 1,
        "sasl_login_retry_backoff_max_ms": 200,
    }
    config = ClientConfig.build(
        "localhost:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        **(known | settings),
    )
    login = security_of(config).login
    assert login is not None
    return login.token


def test_a_client_logs_in_with_its_credentials_and_keeps_the_token(server: TokenServer) -> None:
    server.chunked = True
    token = client(server.url(), sasl_oauthbearer_scope="kafka")
    host = Host.system()

    async def twice() -> list[str]:
        return [*await asyncio.gather(token(host), token(host)), await token(host)]

    first, *others = asyncio.run(twice())
    assert first.count(".") == 2
    assert others == [first, first]
    ((path, headers, fields),) = server.requests
    assert path == "/token"
    assert headers["Authorization"] == "Basic bWU6aGlkZGVu"
    assert fields == {"grant_type": "client_credentials", "scope": "kafka"}


def test_a_server_that_stumbles_is_asked_again(server: TokenServer) -> None:
    server.answers = [(500, b""), (503, b""), (200, b"{}")]
    assert asyncio.run(client(server.url())(Host.system()))
    assert len(server.requests) == 4


def test_a_refusal_is_final_and_says_so_without_the_secret(server: TokenServer) -> None:
    server.answers = [(401, b'{"error": "invalid_client"}')]
    with pytest.raises(AuthenticationFailed, match=r"401 \(invalid_client\)") as failed:
        asyncio.run(client(server.url())(Host.system()))
    assert "hidden" not in str(failed.value)
    assert len(server.requests) == 1


def test_a_token_near_its_end_is_replaced_and_a_failed_refresh_does_no_harm(
    server: TokenServer,
) -> None:
    token = client(
        server.url(),
        sasl_login_refresh_min_period_seconds=0,
        sasl_login_refresh_buffer_seconds=3600,
        sasl_login_refresh_window_jitter=0,
    )
    host = Host.system()
    server.lifetime_seconds = 3599.99  # its window is over at once for this buffer

    async def story() -> None:
        first = await token(host)
        token._refresh_at = 0.0
        server.answers = [(401, b"")]
        assert await token(host) == first
        await _until(lambda: token._refresh_at > 0)
        token._refresh_at = 0.0
        server.claims["sub"] = "bob"
        await _until(lambda: token._refreshing.done())
        assert await token(host) == first
        await _until(lambda: token._refresh_at > 0)
        assert await token(host) != first

    asyncio.run(story())
    assert len(server.requests) == 3


def test_a_server_that_hangs_stops_no_login_while_the_token_is_valid(server: TokenServer) -> None:
    token = client(server.url())
    host = Host.system()

    async def story() -> None:
        first = await token(host)
        token._refresh_at = 0.0
        server.is_up.clear()
        async with asyncio.timeout(10):
            assert [await token(host), await token(host)] == [first, first]
        await _until(lambda: len(server.requests) == 2)

    asyncio.run(story())


def test_a_login_that_gives_up_leaves_the_request_to_the_others(server: TokenServer) -> None:
    token = client(server.url())
    host = Host.system()
    server.is_up.clear()

    async def story() -> None:
        hasty, patient = (asyncio.create_task(token(host)) for _ in range(2))
        await _until(lambda: server.requests)
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        server.is_up.set()
        assert (await patient).count(".") == 2
        assert hasty.cancelled()

    asyncio.run(story())
    assert len(server.requests) == 1


def test_an_unsigned_token_is_not_used(server: TokenServer) -> None:
    unsigned = signed("RS256", {"exp": time.time() + 60}).replace("RS256", "none")
    header = "eyJhbGciOiJub25lIn0"  # {"alg":"none"}
    body = ".".join([header, *unsigned.split(".")[1:]])
    server.answers = [(200, json.dumps({"access_token": body}).encode())]
    with pytest.raises(AuthenticationFailed, match="not signed"):
        asyncio.run(client(server.url())(Host.system()))


def test_an_assertion_is_signed_for_each_request(server: TokenServer, tmp_path: Path) -> None:
    pem = rsa_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    (tmp_path / "assertion").write_text("prepared\n")
    retriever = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
    signing = client(
        server.url(),
        sasl_oauthbearer_jwt_retriever_class=retriever,
        sasl_oauthbearer_assertion_private_key_file=f"{tmp_path}/key.pem",
    )
    ready = client(
        server.url(),
        sasl_oauthbearer_jwt_retriever_class=retriever,
        sasl_oauthbearer_assertion_file=f"{tmp_path}/assertion",
    )
    for token in (signing, ready):
        assert asyncio.run(token(Host.system())).count(".") == 2
    (_, headers, made), (_, _, prepared) = server.requests
    assert made["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert made["assertion"].count(".") == 2
    assert "Authorization" not in headers
    assert prepared["assertion"] == "prepared"


def test_a_token_comes_from_a_file_that_somebody_else_renews(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(signed("RS256", {"sub": "alice", "exp": time.time() + 60}) + "\n")
    token = client(f"file://{file}")
    assert asyncio.run(token(Host.system())) == file.read_text().strip()
    file.unlink()
    with pytest.raises(AuthenticationFailed, match="no such file"):
        asyncio.run(client(f"file://{file}")(Host.system()))


def test_an_address_that_the_environment_does_not_allow_is_refused(server: TokenServer) -> None:
    with pytest.raises(ConfigError, match=URLS_VARIABLE):
        client(server.url("/other"))


def test_the_certificate_of_the_endpoint_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    with TokenServer(context) as server:
        monkeypatch.setenv(URLS_VARIABLE, server.url())
        with pytest.raises(AuthenticationFailed, match="certificate"):
            asyncio.run(client(server.url())(Host.system()))
        assert not server.requests
        (tmp_path / "none.pem").write_bytes(authority.private_key_pem.bytes())
        with pytest.raises(ConfigError, match=r"none\.pem: it holds no certificates"):
            client(
                server.url(),
                sasl_jaas_config=f'{module} ssl.truststore.location="{tmp_path}/none.pem";',
            )
        trusting = f'{module} ssl.truststore.location="{tmp_path}/ca.pem";'
        token = client(server.url(), sasl_jaas_config=trusting)
        assert asyncio.run(token(Host.system())).count(".") == 2


# Keys


async def _until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it is a value of the keeper
            await asyncio.sleep(0.005)


def test_keys_are_read_again_for_an_unknown_key_and_kept_while_the_server_is_away(
    server: TokenServer,
) -> None:
    lines: list[str] = []
    log = Log(SystemClock(), lines.append)

    async def story() -> None:
        settings = JwksSettings(server.url("/jwks"), retry_ms=1, retry_max_ms=5)
        server.answers = [(500, b""), (200, b"not a JWKS")]
        keeper = JwksKeeper(Host.system(), settings, log)
        assert keeper.keys() == ()
        running = asyncio.create_task(keeper.run())
        await _until(lambda: len(keeper.keys()) == 1)
        server.keys = jwks(jwk(), jwk(kid="new"))
        server.answers = [(503, b"")]
        keeper.want("new")
        await _until(lambda: len(keeper.keys()) == 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    assert {path for path, _, _ in server.requests} == {"/jwks"}
    said = [line.strip().partition(" cannot be read: ")[2] for line in lines]
    assert said == ["it answered 500", "it is not valid json", "", "it answered 503", ""]


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks(jwk()))

    async def story() -> None:
        log = Log(SystemClock(), print)
        keeper = JwksKeeper(Host.system(), JwksSettings(f"file://{file}"), log)
        running = asyncio.create_task(keeper.run())
        await _until(lambda: len(keeper.keys()) == 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
