"""The bearer tokens that a server accepts."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest

from headwater.security.bearer import (
    ALGORITHMS,
    TOKEN_BYTES_MAX,
    BearerValidator,
    TokenRules,
    VerifiedToken,
    read_jwks,
)
from headwater.security.sasl.server import InvalidToken
from tests.support.jwts import base64url, jwk, jwks, part, rsa_key, signed

NOW = 1_800_000_000
RULES = TokenRules(audiences=("kafka", "other"), issuer="https://issuer")
TWO_ALGORITHMS = base64url(b'{"alg":"none","alg":"RS256"}')
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kafka",
    "iat": NOW - 10,
    "exp": NOW + 600,
}


def validator(
    *keys: dict[str, Any], rules: TokenRules = RULES, unknown: list[str | None] | None = None
) -> BearerValidator:
    known = read_jwks(jwks(*(keys or (jwk(),))))
    asked: list[str | None] = [] if unknown is None else unknown
    return BearerValidator(rules, lambda: known, lambda: NOW * 1000, asked.append)


def refusal(token: str, *keys: dict[str, Any], rules: TokenRules = RULES) -> str:
    with pytest.raises(InvalidToken) as refused:
        validator(*keys, rules=rules).validate(token)
    return str(refused.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_signed_by_a_known_key_names_its_user(algorithm: str) -> None:
    found = validator(jwk(algorithm)).validate(signed(algorithm, CLAIMS))
    assert found == VerifiedToken("alice", (NOW + 600) * 1000)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_changed_token_is_refused(algorithm: str) -> None:
    header, claims, signature = signed(algorithm, CLAIMS).split(".")
    other = part(CLAIMS | {"sub": "root"})
    assert "signature is wrong" in refusal(f"{header}.{other}.{signature}", jwk(algorithm))
    short = base64url(b"x" * 8)
    assert "signature is wrong" in refusal(f"{header}.{claims}.{short}", jwk(algorithm))
    assert "signature is wrong" in refusal(f"{header}.{claims}.", jwk(algorithm))


def test_an_unsigned_token_is_never_accepted() -> None:
    for name in ("none", "None", "NONE", "", None, 5, ["RS256"]):
        token = f"{part({'alg': name, 'kid': 'k'})}.{part(CLAIMS)}."
        assert "algorithm" in refusal(token)


def test_the_public_key_is_no_shared_secret() -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{part({'alg': 'HS256', 'kid': 'k'})}.{part(CLAIMS)}"
    token = f"{text}.{base64url(hmac.digest(public, text.encode(), 'sha256'))}"
    assert "algorithm" in refusal(token)
    secret = {"kty": "oct", "kid": "k", "k": base64url(public)}
    assert "algorithm" in refusal(token, secret)


def test_a_key_checks_only_what_it_is_for() -> None:
    token = signed("RS256", CLAIMS)
    for more in (
        {"use": "enc"},
        {"alg": "RS512"},
        {"key_ops": ["encrypt"]},
        {"kty": "EC"},
        {"n": base64url(b"\xff" * 128)},
        {"kid": "another"},
    ):
        assert "no key" in refusal(token, jwk() | more)
    assert "no key" in refusal(signed("ES256", CLAIMS), jwk("ES384"))
    assert validator(jwk(use="sig", alg="RS256", key_ops=["verify"])).validate(token)


def test_keys_that_the_token_brings_itself_are_ignored() -> None:
    token = signed("RS256", CLAIMS, kid="stranger", jwk=jwk(), jku="https://evil/jwks")
    assert "no key" in refusal(token)


def test_a_token_without_a_key_id_needs_a_single_key() -> None:
    token = signed("RS256", CLAIMS, kid=None)
    assert validator(jwk()).validate(token).name == "alice"
    assert "several keys" in refusal(token, jwk(kid="a"), jwk(kid="b"))


def test_an_unknown_key_id_is_told_so_that_keys_are_read_again() -> None:
    unknown: list[str | None] = []
    with pytest.raises(InvalidToken):
        validator(unknown=unknown).validate(signed("RS256", CLAIMS, kid="new"))
    assert unknown == ["new"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "exp is not a time"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"iat": None}, "iat is not a time"),
        ({"iat": NOW + 31}, "not valid yet"),
        ({"iat": NOW + 31, "nbf": NOW}, "issued in the future"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iat": NOW + 20, "exp": NOW + 20}, "before it was issued"),
        ({"iss": "https://issuer/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "kafk"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": {"kafka": 1}}, "audience"),
        ({"sub": None}, "sub is not a name"),
        ({"sub": "  "}, "sub is not a name"),
        ({"sub": 7}, "sub is not a name"),
        ({"sub": "x" * 2000}, "sub is not a name"),
        ({"scope": 5}, "scope"),
        ({"scope": ["a", 1]}, "scope"),
    ],
)
def test_claims_that_break_a_rule_are_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(signed("RS256", CLAIMS | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 29, "iat": NOW - 99},
        {"nbf": NOW + 29, "iat": NOW + 29},
        {"aud": ["a", "other"]},
        {"exp": NOW + 0.5},
    ],
)
def test_clocks_may_differ_and_one_audience_is_enough(changes: dict[str, Any]) -> None:
    assert validator().validate(signed("RS256", CLAIMS | changes)).name == "alice"


def test_name_and_scope_come_from_the_claims_that_the_settings_name() -> None:
    rules = TokenRules(("kafka",), "https://issuer", name_claim="azp", scope_claim="scp")
    claims = CLAIMS | {"azp": "etl", "scp": "read write"}
    found = validator(rules=rules).validate(signed("RS256", claims))
    assert (found.name, found.scopes) == ("etl", ("read", "write"))
    listed = validator(rules=rules).validate(signed("RS256", claims | {"scp": ["read"]}))
    assert listed.scopes == ("read",)


def test_an_audience_is_refused_where_none_is_expected() -> None:
    rules = TokenRules(issuer="https://issuer")
    assert "expected.audience is not set" in refusal(signed("RS256", CLAIMS), rules=rules)
    free = {name: value for name, value in CLAIMS.items() if name != "aud"}
    assert validator(rules=rules).validate(signed("RS256", free)).name == "alice"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "..",
        "a.b",
        "a.b.c.d",
        "é.é.é",
        "!!.!!.!!",
        f"{part([1])}.{part(CLAIMS)}.AA",
        f"{base64url(b'{')}.{part(CLAIMS)}.AA",
        f"{base64url(b'[' * 40_000)}.{part(CLAIMS)}.AA",
        f"{TWO_ALGORITHMS}.{part(CLAIMS)}.AA",
        f"{part({'alg': 'RS256', 'crit': ['exp'], 'kid': 'k'})}.{part(CLAIMS)}.AA",
        f"{part({'alg': 'RS256', 'typ': 'JWE', 'kid': 'k'})}.{part(CLAIMS)}.AA",
        f"{part({'alg': 'RS256', 'kid': ['k']})}.{part(CLAIMS)}.AA",
        "x" * (TOKEN_BYTES_MAX + 1),
    ],
)
def test_what_is_no_signed_token_is_refused_without_being_quoted(token: str) -> None:
    said = refusal(token)
    assert len(said) < 200
    assert token == "" or len(token) < 4 or token not in said


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 5}', b"[" * 100_000])
def test_a_jwks_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        read_jwks(data)


def test_keys_that_cannot_be_used_are_left_out() -> None:
    bad = [
        {"kty": "oct", "k": "AA"},
        {"kty": "RSA", "n": 5},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        {"kty": "EC", "crv": ["P-256"], "x": "AA", "y": "AA"},
        {"kty": ["EC"], "crv": {}, "use": [], "key_ops": {}},
        {"kty": "EC", "crv": "P-256", "x": "\u00e9", "y": "A" * 10_000},
        {},
    ]
    assert [key.id for key in read_jwks(json.dumps({"keys": [*bad, "x", jwk()]}).encode())] == ["k"]
