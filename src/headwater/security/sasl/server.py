"""The server's side of an authentication: one machine for each connection and mechanism.

`answer` is called with each token of the client. It returns a `Challenge` until the client has
proved who it is, then `Authenticated`; a client that cannot is refused with `SaslRefused`. The
texts that clients get are Kafka's.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from headwater.security.principal import Principal

_DIGEST = "sha256"


class Challenge(NamedTuple):
    """The exchange goes on: the client answers this token."""

    token: bytes


class Authenticated(NamedTuple):
    principal: Principal
    token_to_send: bytes
    expires_at_ms: int | None = None  # wall clock; None where the credentials do not expire


class SaslRefused(Exception):
    """The client is not authenticated.

    The client is told why only if `is_told`: otherwise it gets the same sentence for an unknown
    user, a wrong password and a malformed token. The log gets the reason in any case.
    """

    def __init__(self, reason: str, *, user: str = "", is_told: bool = False) -> None:
        super().__init__(reason)
        self.user = user
        self.is_told = is_told


class SaslServer(Protocol):
    def answer(self, token: bytes) -> Challenge | Authenticated: ...


class PlainUsers:
    """Users and passwords of a `sasl.jaas.config`.

    Only keyed digests are kept. They all have the same length, so a comparison takes the same time
    for every password, and for a user that does not exist.
    """

    __slots__ = ("_digests", "_key", "_nobody")

    def __init__(self, users: Mapping[str, str], key: bytes) -> None:
        """`key` is random; it lives as long as this object."""
        self._key = key
        self._digests = {user: self._digest(password) for user, password in users.items()}
        self._nobody = bytes(hmac.new(key, b"", _DIGEST).digest_size)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), _DIGEST)

    def check(self, user: str, password: str) -> bool:
        expected = self._digests.get(user, self._nobody)
        return hmac.compare_digest(self._digest(password), expected) and user in self._digests


class PlainServer:
    """PLAIN (RFC 4616)."""

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[str, str], bool]) -> None:
        self._check = check

    def answer(self, token: bytes) -> Challenge | Authenticated:
        text = token.decode(errors="replace")
        parts = text.split("\0")
        if len(parts) != 3:
            found = min(len(parts), 4)  # Kafka counts no further
            raise SaslRefused(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {found}", is_told=True
            )
        authorization_id, user, password = parts
        if not user:
            raise SaslRefused("Authentication failed: username not specified", is_told=True)
        if not password:
            raise SaslRefused(
                "Authentication failed: password not specified", user=user, is_told=True
            )
        # Bytes that are not text match no password, not even one with the replacement character.
        if not self._check(user, password) or text.encode() != token:
            raise SaslRefused(
                "Authentication failed: Invalid username or password", user=user, is_told=True
            )
        # CVE-2017-12610: nobody may act for another user.
        check_authorization_id(authorization_id, user)
        return Authenticated(Principal("User", user), b"")


def check_authorization_id(authorization_id: str, user: str) -> None:
    if authorization_id and authorization_id != user:
        raise SaslRefused(
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
            user=user,
            is_told=True,
        )


class Identity(Protocol):
    """The user that a valid bearer token names."""

    @property
    def name(self) -> str: ...

    @property
    def expires_at_ms(self) -> int: ...


class InvalidToken(Exception):
    """A bearer token that is not accepted; the text is for the log and has no part of the token."""


class BearerServer:
    """OAUTHBEARER (RFC 7628). A client whose token is invalid gets a description of the error, has
    to acknowledge it, and is refused then."""

    __slots__ = ("_refused", "_validate")

    def __init__(self, validate: Callable[[str], Identity]) -> None:
        """`validate` raises InvalidToken."""
        self._validate = validate
        self._refused: str | None = None

    def answer(self, token: bytes) -> Challenge | Authenticated:
        if self._refused is not None:
            if token != b"\x01":
                raise SaslRefused("it did not acknowledge that its token is invalid")
            raise SaslRefused('{"status":"invalid_token"}', user=self._refused, is_told=True)
        authorization_id, bearer = _bearer(token)
        try:
            identity = self._validate(bearer)
        except InvalidToken as invalid:
            self._refused = f"({invalid})"
            return Challenge(b'{"status":"invalid_token"}')
        check_authorization_id(authorization_id, identity.name)
        return Authenticated(Principal("User", identity.name), b"", identity.expires_at_ms)


def _bearer(token: bytes) -> tuple[str, str]:
    """Returns the authorization id and the bearer token of the client's first message."""
    malformed = SaslRefused("its token is not a message of OAUTHBEARER")
    try:
        header, *pairs = token.decode().split("\x01")
    except UnicodeDecodeError:
        raise malformed from None
    flag, _, rest = header.partition(",")
    authorization_id, comma, nothing = rest.partition(",")
    if flag != "n" or not comma or nothing or pairs[-2:] != ["", ""]:
        raise malformed
    if authorization_id and not authorization_id.startswith("a="):
        raise malformed
    values = dict(pair.partition("=")[::2] for pair in pairs[:-2])
    scheme, _, bearer = values.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not bearer.strip():
        raise malformed
    return authorization_id[2:], bearer.strip()
