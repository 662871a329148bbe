"""A client's requests for bearer tokens (KIP-768, KIP-1139), and when it renews them.

There are three ways to get one: a file, the client credentials of RFC 6749, and a signed assertion
(RFC 7523). The driver is in `net/oauth`. Addresses and files come from settings that may not be the
operator's own, so only those that the environment allows are used (CVE-2025-27817).
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

URLS_VARIABLE = "HEADWATER_OAUTHBEARER_ALLOWED_URLS"
FILES_VARIABLE = "HEADWATER_OAUTHBEARER_ALLOWED_FILES"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_DEFAULT = f"{_PACKAGE}.DefaultJwtRetriever"
FILE, CREDENTIALS, ASSERTION = "file", "client credentials", "assertion"
_RETRIEVERS = {
    f"{_PACKAGE}.FileJwtRetriever": FILE,
    f"{_PACKAGE}.ClientCredentialsJwtRetriever": CREDENTIALS,
    f"{_PACKAGE}.JwtBearerJwtRetriever": ASSERTION,
}
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_BYTES_MAX = 64 * 1024
# Asking again does not help: the request itself is refused.
_FINAL = frozenset(range(400, 500)) - {408, 425, 429}


class OAuthRefused(Exception):
    """A setting or a response that cannot be used. The text has no secret and no token."""


class OAuthFailed(Exception):
    """An attempt that failed, of which the next one may not."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """An assertion: the content of a file, or signed with a key."""

    file: str | None = None
    key_file: str | None = None
    passphrase: str | None = field(default=None, repr=False)
    template_file: str | None = None
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    expires_seconds: int = 300
    not_before_seconds: int = 60
    has_id: bool = False


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    way: str
    url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    encodes_header: bool = False
    assertion: Assertion = field(default_factory=Assertion)
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_ms: int = 100
    retry_max_ms: int = 10_000
    window_factor: float = 0.8
    window_jitter: float = 0.05
    refresh_seconds_min: int = 60
    buffer_seconds: int = 300

    @property
    def path(self) -> str:
        """The file of a token that comes from one."""
        return unquote(urlsplit(self.url).path)


def oauth_settings(
    get: Callable[[str], Any],
    options: Mapping[str, str],
    *,
    allowed_urls: Collection[str],
    allowed_files: Collection[str],
) -> OAuthSettings:
    """Reads the settings: `get` returns one by Kafka's name, `options` are those of
    `sasl.jaas.config`, where older clients have the credentials. Raises OAuthRefused."""
    url = _needed(get, "sasl.oauthbearer.token.endpoint.url")
    check_url("sasl.oauthbearer.token.endpoint.url", url, allowed_urls)
    settings = OAuthSettings(
        way=_way(str(get("sasl.oauthbearer.jwt.retriever.class") or _DEFAULT), url),
        url=url,
        client_id=get("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId"),
        client_secret=get("sasl.oauthbearer.client.credentials.client.secret")
        or options.get("clientSecret"),
        scope=get("sasl.oauthbearer.scope") or options.get("scope"),
        encodes_header=bool(get("sasl.oauthbearer.header.urlencode")),
        assertion=_assertion(get),
        connect_timeout_ms=get("sasl.login.connect.timeout.ms") or 10_000,
        read_timeout_ms=get("sasl.login.read.timeout.ms") or 10_000,
        retry_ms=get("sasl.login.retry.backoff.ms"),
        retry_max_ms=get("sasl.login.retry.backoff.max.ms"),
        window_factor=get("sasl.login.refresh.window.factor"),
        window_jitter=get("sasl.login.refresh.window.jitter"),
        refresh_seconds_min=get("sasl.login.refresh.min.period.seconds"),
        buffer_seconds=get("sasl.login.refresh.buffer.seconds"),
    )
    _check(settings, allowed_files)
    return settings


def _assertion(get: Callable[[str], Any]) -> Assertion:
    return Assertion(
        file=get("sasl.oauthbearer.assertion.file"),
        key_file=get("sasl.oauthbearer.assertion.private.key.file"),
        passphrase=get("sasl.oauthbearer.assertion.private.key.passphrase"),
        template_file=get("sasl.oauthbearer.assertion.template.file"),
        algorithm=str(get("sasl.oauthbearer.assertion.algorithm")).upper(),
        audience=get("sasl.oauthbearer.assertion.claim.aud"),
        issuer=get("sasl.oauthbearer.assertion.claim.iss"),
        subject=get("sasl.oauthbearer.assertion.claim.sub"),
        expires_seconds=get("sasl.oauthbearer.assertion.claim.exp.seconds"),
        not_before_seconds=get("sasl.oauthbearer.assertion.claim.nbf.seconds"),
        has_id=bool(get("sasl.oauthbearer.assertion.claim.jti.include")),
    )


def _needed(get: Callable[[str], Any], name: str) -> str:
    value = get(name)
    if not value:
        raise OAuthRefused(f"{name} is not set: OAUTHBEARER needs a token endpoint")
    return str(value)


def _way(retriever: str, url: str) -> str:
    if retriever == _DEFAULT:
        return FILE if urlsplit(url).scheme == "file" else CREDENTIALS
    way = _RETRIEVERS.get(retriever)
    if way is None:
        raise OAuthRefused(
            f"sasl.oauthbearer.jwt.retriever.class={retriever}: expected one of "
            + ", ".join((_DEFAULT, *_RETRIEVERS))
        )
    if (way == FILE) != (urlsplit(url).scheme == "file"):
        raise OAuthRefused(f"sasl.oauthbearer.token.endpoint.url={shown(url)} does not fit {way}")
    return way


def check_url(name: str, url: str, allowed: Collection[str]) -> None:
    """Refuses an address that is not in the list of those allowed, and every unusual one."""
    try:
        at = urlsplit(url)
        is_usual = at.scheme == "file" or (
            at.scheme in ("http", "https") and at.hostname and not at.username and at.port != 0
        )
    except ValueError:
        is_usual = False
    if not is_usual:
        raise OAuthRefused(f"{name}={shown(url)}: expected a URL with https, http or file")
    if url not in allowed:
        raise OAuthRefused(
            f"{name}={shown(url)} is not allowed; if it is right, add it to the environment "
            f"variable {URLS_VARIABLE}, which lists allowed URLs with commas"
        )


def shown(url: str) -> str:
    """Returns a URL without a password in it."""
    scheme, slashes, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{place.rpartition('@')[2]}{slash}{path}"


def _check(settings: OAuthSettings, allowed_files: Collection[str]) -> None:
    prefix = "sasl.oauthbearer."
    if settings.way == CREDENTIALS and not (settings.client_id and settings.client_secret):
        raise OAuthRefused(
            f"{prefix}client.credentials.client.id and {prefix}client.credentials.client.secret "
            "are not both set"
        )
    if settings.way != ASSERTION:
        return
    made = settings.assertion
    if (made.file is None) == (made.key_file is None):
        raise OAuthRefused(
            f"expected either {prefix}assertion.file or {prefix}assertion.private.key.file"
        )
    for name, path in (
        ("file", made.file),
        ("private.key.file", made.key_file),
        ("template.file", made.template_file),
    ):
        if path is not None and path not in allowed_files:
            raise OAuthRefused(
                f"{prefix}assertion.{name}={path} is not allowed; if it is right, add it to the "
                f"environment variable {FILES_VARIABLE}, which lists allowed files with commas"
            )


# Requests and responses


class Request(NamedTuple):
    headers: dict[str, str]
    body: bytes


def token_request(settings: OAuthSettings, assertion: str | None = None) -> Request:
    fields = {"grant_type": "client_credentials" if assertion is None else _JWT_BEARER}
    headers = {
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    if assertion is None:
        pair = [settings.client_id or "", settings.client_secret or ""]
        if settings.encodes_header:
            pair = [quote_plus(each) for each in pair]
        headers["Authorization"] = "Basic " + b64encode(":".join(pair).encode()).decode()
    else:
        fields["assertion"] = assertion
    if settings.scope:
        fields["scope"] = settings.scope
    return Request(headers, urlencode(fields).encode())


def token_in(status: int, body: bytes) -> str:
    """Returns the token in a response; raises OAuthRefused, or OAuthFailed where it may pass."""
    if status not in (200, 201):
        kind = OAuthRefused if status in _FINAL else OAuthFailed
        raise kind(f"it answered {status}{_reason(body)}")
    try:
        found = json.loads(body)
        token = found.get("access_token") or found.get("id_token")
    except (ValueError, AttributeError, RecursionError):
        raise OAuthFailed("its response is not a JSON object") from None
    if not isinstance(token, str):
        raise OAuthFailed("its response has no access_token")
    return token


def _reason(body: bytes) -> str:
    """Returns the error code of RFC 6749 in a response, if it has one that is short and plain."""
    try:
        code = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    is_plain = isinstance(code, str) and len(code) < 64 and code.replace("_", "").isalnum()
    return f" ({code})" if is_plain else ""


class Lifetime(NamedTuple):
    issued: float  # seconds since 1970
    expires: float


def lifetime_of(token: str) -> Lifetime:
    """Returns the times in a token; raises OAuthRefused for one that is not a signed JWT. The
    signature is the server's to check."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts) or len(token) > _TOKEN_BYTES_MAX:
        raise OAuthRefused("the token is not a signed JWT")
    header, claims = (_json_of(part) for part in parts[:2])
    if str(header.get("alg", "none")).lower() == "none":
        raise OAuthRefused("the token is not signed")
    return Lifetime(_time(claims.get("iat", 0)), _time(claims.get("exp")))


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise OAuthRefused("the token does not say when it expires (exp)")
    return float(value)


def _json_of(part: str) -> dict[str, Any]:
    try:
        found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (NotBase64, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise OAuthRefused("the token is not a signed JWT")
    return found


def refresh_at(settings: OAuthSettings, lifetime: Lifetime, now: float, random: Random) -> float:
    """Returns when to get the next token: after the window of this one's lifetime, but `buffer`
    before its end and not before the minimum period has passed. If both do not fit, the window
    alone counts."""
    start = now if not lifetime.issued or lifetime.issued > now else lifetime.issued
    share = settings.window_factor + settings.window_jitter * random.random()
    proposed = start + (lifetime.expires - start) * share
    earliest, latest = (
        now + settings.refresh_seconds_min,
        lifetime.expires - settings.buffer_seconds,
    )
    if earliest > latest:
        return proposed
    return min(max(proposed, earliest), latest)


# Assertions


def signed_assertion(
    made: Assertion, key_pem: bytes, template: bytes | None, now: float, token_id: str
) -> str:
    """Returns a JWT signed with the key. Raises OAuthRefused, and ImportError without
    `cryptography`."""
    header: dict[str, Any] = {"alg": made.algorithm, "typ": "JWT"}
    claims: dict[str, Any] = {
        "iat": int(now),
        "exp": int(now) + made.expires_seconds,
        "nbf": int(now) - made.not_before_seconds,
    }
    named = {"aud": made.audience, "iss": made.issuer, "sub": made.subject}
    claims |= {name: value for name, value in named.items() if value is not None}
    if made.has_id:
        claims["jti"] = token_id
    if template is not None:
        more = _template(template)
        header = more.get("header", {}) | header
        claims = more.get("payload", {}) | claims
    signed = f"{_part(header)}.{_part(claims)}"
    return f"{signed}.{_base64url(_signature(made, key_pem, signed.encode()))}"


def _template(data: bytes) -> dict[str, dict[str, Any]]:
    name = "sasl.oauthbearer.assertion.template.file"
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise OAuthRefused(f'{name}: expected JSON such as {{"header": {{}}, "payload": {{}}}}')
    return found


def _signature(made: Assertion, key_pem: bytes, signed: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    name = "sasl.oauthbearer.assertion.private.key.file"
    password = made.passphrase.encode() if made.passphrase else None
    try:
        key = load_pem_private_key(key_pem, password)
    except (ValueError, TypeError) as error:
        raise OAuthRefused(f"{name}: the key cannot be read: {type(error).__name__}") from None
    if made.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, padding.PKCS1v15(), SHA256())
    is_curve = isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)
    if made.algorithm == "ES256" and is_curve:
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        r, s = utils.decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)
    raise OAuthRefused(f"{name}: the key does not fit the algorithm {made.algorithm}")


def _part(content: object) -> str:
    return _base64url(json.dumps(content, separators=(",", ":")).encode())


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
