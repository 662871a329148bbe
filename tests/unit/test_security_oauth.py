"""The sources of a client's tokens, its requests, and when it renews a token."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from headwater.client.config import ClientConfig
from headwater.net.oauth.http import BODY_BYTES_MAX, Response, ResponseReader
from headwater.security.bearer import BearerValidator, TokenRules, read_jwks
from headwater.security.oauth import (
    ASSERTION,
    CREDENTIALS,
    FILE,
    Assertion,
    Lifetime,
    OAuthFailed,
    OAuthRefused,
    OAuthSettings,
    lifetime_of,
    oauth_settings,
    refresh_at,
    signed_assertion,
    token_in,
    token_request,
)
from tests.support.jwts import ec_key, jwk, jwks, part, rsa_key, signed

URL = "https://login.example.org/token"
PREFIX = "org.apache.kafka.common.security.oauthbearer."
NOW = 1_800_000_000.0


def read(settings: dict[str, Any], options: dict[str, str] | None = None) -> OAuthSettings:
    config = ClientConfig.build("localhost:9092", config=settings)
    return oauth_settings(
        lambda name: getattr(config, name.replace(".", "_")),
        options or {},
        allowed_urls=(URL, "file:///token", "http://a:b@c/token", "gopher://x/"),
        allowed_files=("/key.pem",),
    )


CLIENT = {
    "sasl.oauthbearer.token.endpoint.url": URL,
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "hidden",
}


def test_the_way_to_a_token_follows_from_the_settings() -> None:
    assert read(CLIENT).way == CREDENTIALS
    assert read({"sasl.oauthbearer.token.endpoint.url": "file:///token"}).way == FILE
    assertion = {
        "sasl.oauthbearer.token.endpoint.url": URL,
        "sasl.oauthbearer.jwt.retriever.class": f"{PREFIX}JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.private.key.file": "/key.pem",
    }
    assert read(assertion).way == ASSERTION


def test_credentials_may_be_in_the_jaas_config_and_are_never_shown() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": URL}
    options = {"clientId": "me", "clientSecret": "hidden", "scope": "all"}
    found = read(url, options)
    assert (found.client_id, found.client_secret, found.scope) == ("me", "hidden", "all")
    assert "hidden" not in repr(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": "https://other/token"}, "is not allowed; if"),
        ({"sasl.oauthbearer.token.endpoint.url": URL + "?x"}, "is not allowed; if"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://a:b@c/token"}, "http://c/token: expected"),
        ({"sasl.oauthbearer.token.endpoint.url": "gopher://x/"}, "expected a URL with https"),
        ({"sasl.oauthbearer.client.credentials.client.secret": None}, "are not both set"),
        ({"sasl.oauthbearer.jwt.retriever.class": "evil.Retriever"}, "expected one of"),
        ({"sasl.oauthbearer.jwt.retriever.class": f"{PREFIX}FileJwtRetriever"}, "does not fit"),
        (
            {"sasl.oauthbearer.jwt.retriever.class": f"{PREFIX}JwtBearerJwtRetriever"},
            "expected either",
        ),
        (
            {
                "sasl.oauthbearer.jwt.retriever.class": f"{PREFIX}JwtBearerJwtRetriever",
                "sasl.oauthbearer.assertion.file": "/etc/shadow",
            },
            "assertion.file=/etc/shadow is not allowed",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(OAuthRefused) as refused:
        read(CLIENT | changes)
    assert said in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_client_credentials_are_sent_as_rfc_6749_says() -> None:
    settings = OAuthSettings(
        CREDENTIALS, URL, client_id="me:too", client_secret="h%d", scope="a b", encodes_header=True
    )
    request = token_request(settings)
    assert request.headers["Authorization"] == "Basic bWUlM0F0b286aCUyNWQ="
    assert request.body == b"grant_type=client_credentials&scope=a+b"
    other = token_request(settings, "signed")
    assert "Authorization" not in other.headers
    assert b"jwt-bearer&assertion=signed&scope=a+b" in other.body


def test_a_response_has_a_token_or_says_whether_to_ask_again() -> None:
    assert token_in(200, b'{"access_token": "t"}') == "t"
    assert token_in(200, b'{"id_token": "t"}') == "t"
    for status, body in ((500, b""), (429, b""), (200, b"{}"), (200, b"[]"), (200, b"<html>")):
        with pytest.raises(OAuthFailed):
            token_in(status, body)
    for status in (301, 503):
        with pytest.raises(OAuthFailed, match=str(status)):
            token_in(status, b"")
    with pytest.raises(OAuthRefused, match=r"401 \(invalid_client\)"):
        token_in(401, b'{"error": "invalid_client", "error_description": "hidden"}')
    with pytest.raises(OAuthRefused) as refused:
        token_in(400, b'{"error": "a\\nforged line"}')
    assert str(refused.value) == "it answered 400"


def test_unsigned_and_endless_tokens_are_refused() -> None:
    assert lifetime_of(signed("RS256", {"iat": 5, "exp": 9})) == Lifetime(5, 9)
    for token in (
        "opaque",
        f"{part({'alg': 'none'})}.{part({'exp': 9})}.",
        f"{part({'alg': 'NONE'})}.{part({'exp': 9})}.AA",
        f"{part({})}.{part({'exp': 9})}.AA",
        signed("RS256", {"iat": 5}),
        signed("RS256", {"exp": "soon"}),
        signed("RS256", [1]),
        "x" * 100_000,
    ):
        with pytest.raises(OAuthRefused):
            lifetime_of(token)


@pytest.mark.parametrize(
    ("lifetime", "expected"),
    [
        (3600, 0.8 * 3600),  # the window
        (1000, 700),  # 300 seconds are left for what can go wrong
        (400, 100),  # both fit
        (350, 280),  # they do not fit: the window alone
        (36, 28.8),
    ],
)
def test_a_token_is_refreshed_before_it_expires(lifetime: float, expected: float) -> None:
    settings = OAuthSettings(CREDENTIALS, URL, window_jitter=0.0)
    at = refresh_at(settings, Lifetime(NOW, NOW + lifetime), NOW, Random(1))
    assert at == pytest.approx(NOW + expected)


def test_refreshes_of_many_clients_are_spread() -> None:
    settings = OAuthSettings(CREDENTIALS, URL, window_jitter=0.25, buffer_seconds=0)
    random = Random(1)
    times = [refresh_at(settings, Lifetime(NOW, NOW + 1000), NOW, random) for _ in range(50)]
    assert NOW + 800 <= min(times) < NOW + 850
    assert NOW + 950 < max(times) <= NOW + 1050


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("passphrase", [None, "hidden"])
def test_an_assertion_is_signed_and_says_what_the_settings_say(
    algorithm: str, passphrase: str | None
) -> None:
    key = rsa_key() if algorithm == "RS256" else ec_key("ES256")
    how = BestAvailableEncryption(b"hidden") if passphrase else NoEncryption()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
    made = Assertion(
        algorithm=algorithm,
        passphrase=passphrase,
        audience="login",
        issuer="me",
        subject="etl",
        has_id=True,
    )
    template = json.dumps({"header": {"kid": "k", "alg": "none"}, "payload": {"team": "x"}})
    token = signed_assertion(made, pem, template.encode(), NOW, "unique")
    known = read_jwks(jwks(jwk(algorithm)))
    rules = TokenRules(audiences=("login",), issuer="me")
    validator = BearerValidator(rules, lambda: known, lambda: int(NOW * 1000))
    assert validator.validate(token).name == "etl"
    body = token.split(".")[1]
    claims = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    assert claims["exp"] == NOW + 300
    assert claims["nbf"] == NOW - 60
    assert (claims["jti"], claims["team"]) == ("unique", "x")


def test_a_key_that_cannot_sign_is_refused() -> None:
    pem = ec_key("ES256").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(OAuthRefused, match="does not fit the algorithm RS256"):
        signed_assertion(Assertion(), pem, None, NOW, "")
    with pytest.raises(OAuthRefused, match="cannot be read"):
        signed_assertion(Assertion(), b"no key", None, NOW, "")
    with pytest.raises(OAuthRefused, match="expected JSON"):
        signed_assertion(Assertion(algorithm="ES256"), pem, b"[]", NOW, "")


# HTTP


def parse(data: bytes, *, ended: bool) -> Response | None:
    return ResponseReader().read(data, ended=ended)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
    ],
)
def test_a_response_is_read_when_it_is_complete(data: bytes) -> None:
    assert parse(data, ended=False) == Response(200, b"hello")
    for end in range(len(data) - 3):
        try:
            assert parse(data[:end], ended=False) is None
        except ValueError:
            pytest.fail(f"refused after {end} bytes")
    reader = ResponseReader()
    pieces = [reader.read(data[at : at + 1], ended=False) for at in range(len(data))]
    assert next(each for each in pieces if each is not None) == Response(200, b"hello")


def test_many_interim_responses_are_read_and_too_many_refused() -> None:
    interim, last = (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 204 OK\r\nContent-Length: 0\r\n\r\n",
    )
    assert parse(interim * 2_000 + last, ended=False) == Response(204, b"")
    with pytest.raises(ValueError, match="not HTTP"):
        parse(interim * 3_000, ended=False)


def test_a_response_without_a_length_ends_with_the_connection() -> None:
    data = b"HTTP/1.0 401 Unauthorized\r\n\r\nno"
    assert parse(data, ended=False) is None
    assert parse(data, ended=True) == Response(401, b"no")


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 2_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 400_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 * BODY_BYTES_MAX + 1),
    ],
)
def test_a_response_that_is_none_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="response"):
        parse(data, ended=False)
