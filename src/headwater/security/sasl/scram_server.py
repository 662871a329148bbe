"""SCRAM (RFC 5802, 7677) on the server, which knows a user's keys and never the password."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from typing import NamedTuple

from headwater.security.principal import Principal
from headwater.security.sasl.scram import DIGESTS, ITERATIONS_MIN, mac
from headwater.security.sasl.server import (
    Authenticated,
    Challenge,
    SaslRefused,
    check_authorization_id,
)

# The header says that no channel is bound. A mandatory extension (m=) must be refused: RFC 5802.
_FIRST = re.compile(
    r"(?P<header>n,(?:a=(?P<authzid>[^,]+))?,)"
    r"(?P<bare>n=(?P<name>(?:[^=,\0]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z][A-Za-z0-9]*=[^,\0]+)*))"
)
_FINAL = re.compile(
    r"(?P<unproven>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,[A-Za-z]+=[^,]*)*),p=(?P<proof>[^,]+)"
)
_TOKEN_BYTES_MAX = 16 * 1024  # a message has a name, nonces and a proof
_SALT_BYTES = 32  # of Headwater's own clients


class ScramSecret(NamedTuple):
    """The credentials that a server keeps for a user, or for a delegation token."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    principal: Principal
    expires_at_ms: int | None = None

    def __repr__(self) -> str:  # the keys let anybody in
        return f"ScramSecret(principal={self.principal}, iterations={self.iterations})"


Find = Callable[[str, bool], ScramSecret | None]
"""Returns the secret of a user or, if the second argument is true, of a delegation token."""


class ScramServer:
    """`nonce` is new each time and cannot be guessed. `decoy` is a secret of this node: a user that
    does not exist gets a salt made from it, always the same, and fails at the end of the exchange,
    like a user with a wrong password."""

    __slots__ = ("_decoy", "_digest", "_find", "_first", "_nonce", "_said", "_secret", "_user")

    def __init__(self, mechanism: str, find: Find, nonce: str, decoy: bytes) -> None:
        self._digest = DIGESTS[mechanism]
        self._find = find
        self._nonce = nonce
        self._decoy = decoy
        self._user = ""
        self._first: re.Match[str] | None = None
        self._said = ""
        self._secret: ScramSecret | None = None

    def answer(self, token: bytes) -> Challenge | Authenticated:
        if len(token) > _TOKEN_BYTES_MAX:
            raise SaslRefused(f"its token has {len(token)} bytes", user=self._user)
        try:
            said = token.decode()
        except UnicodeDecodeError:
            raise SaslRefused("its token is not text", user=self._user) from None
        return self._begin(said) if self._first is None else self._finish(self._first, said)

    def _begin(self, said: str) -> Challenge:
        first = _FIRST.fullmatch(said)
        if first is None:
            raise SaslRefused("its first message is malformed")
        self._first = first
        self._user = user = _unescaped(first["name"])
        check_authorization_id(_unescaped(first["authzid"]), user)
        is_token = "tokenauth=true" in first["extensions"].lower().split(",")
        self._secret = secret = self._find(user, is_token)
        made_up = self._made_up_salt(user, is_token=is_token)  # always, so that it takes no longer
        salt, iterations = (
            (made_up, ITERATIONS_MIN) if secret is None else (secret.salt, secret.iterations)
        )
        nonce = first["nonce"] + self._nonce
        self._said = f"r={nonce},s={b64encode(salt).decode()},i={iterations}"
        return Challenge(self._said.encode())

    def _made_up_salt(self, user: str, *, is_token: bool) -> bytes:
        # Salts of users that exist differ by mechanism, too.
        what = f"{self._digest} {is_token} {user}"
        return hmac.digest(self._decoy, what.encode(), "sha256")[:_SALT_BYTES]

    def _finish(self, first: re.Match[str], said: str) -> Authenticated:
        user, secret = self._user, self._secret
        final = _FINAL.fullmatch(said)
        if final is None:
            raise SaslRefused("its final message is malformed", user=user)
        # CVE-2024-56128: a proof for another exchange must not be accepted.
        nonce = first["nonce"] + self._nonce
        if not hmac.compare_digest(final["nonce"].encode(), nonce.encode()):
            raise SaslRefused("its final message has another nonce", user=user)
        if _decoded(final["binding"]) != first["header"].encode():
            raise SaslRefused("it binds another channel", user=user)
        proof = _decoded(final["proof"])
        size = hashlib.new(self._digest).digest_size
        stored_key = self._decoy if secret is None else secret.stored_key
        everything = f"{first['bare']},{self._said},{final['unproven']}".encode()
        signature = mac(self._digest, stored_key, everything)
        if proof is None or len(proof) != size:
            raise SaslRefused("its proof is malformed", user=user)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), stored_key)
        if secret is None or not is_right:
            reason = "unknown user" if secret is None else "wrong password"
            raise SaslRefused(reason, user=user)
        verifier = b64encode(mac(self._digest, secret.server_key, everything))
        return Authenticated(secret.principal, b"v=" + verifier, secret.expires_at_ms)


def _unescaped(name: str | None) -> str:
    return (name or "").replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        return None
