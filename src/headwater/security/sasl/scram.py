"""SCRAM (RFC 5802, 7677): both sides prove that they know the password without sending it."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import NamedTuple

from headwater.security.sasl.client import SaslFailed

DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4096  # RFC 7677 and Kafka take no less
ITERATIONS_STORED_MAX = 16_384  # Kafka stores no credential with more
ITERATIONS_MAX = 100_000  # a server must not keep us busy

_NO_BINDING = "n,,"
_FINAL_WITHOUT_PROOF = "c=" + b64encode(_NO_BINDING.encode()).decode()


def salted_password(mechanism: str, password: str | bytes, salt: bytes, iterations: int) -> bytes:
    secret = password.encode() if isinstance(password, str) else password
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], secret, salt, iterations)


def mac(digest: str, key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, digest).digest()


class ScramKeys(NamedTuple):
    """The keys that a server stores instead of a password: enough to check a proof, not to make
    one."""

    stored: bytes
    server: bytes


def scram_keys(mechanism: str, salted: bytes) -> ScramKeys:
    """Returns the keys of a salted password, which they do not reveal."""
    digest = DIGESTS[mechanism]
    stored = hashlib.new(digest, mac(digest, salted, b"Client Key")).digest()
    return ScramKeys(stored, mac(digest, salted, b"Server Key"))


class ScramClient:
    """`nonce` is new each time and cannot be guessed: printable, without commas."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        nonce: str,
        *,
        is_token: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._password = password
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}"
        if is_token:  # a delegation token's id and secret (KIP-48)
            self._first += ",tokenauth=true"
        self._signature: bytes | None = None  # the server's, when we know what it must be

    def first(self) -> bytes:
        return (_NO_BINDING + self._first).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            said = challenge.decode()
        except UnicodeDecodeError:
            raise SaslFailed(f"its challenge is not text: {challenge[:40]!r}") from None
        if self._signature is None:
            return self._prove(said)
        self._verify(said)
        return None

    def _prove(self, challenge: str) -> bytes:
        fields = _fields(challenge)
        if "e" in fields:
            raise SaslFailed(f"it answered {fields['e']!r}")
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslFailed("its nonce does not begin with ours")
        salt = _decoded(fields, "s")
        iterations = _iterations(fields.get("i", ""))
        salted = salted_password(self.mechanism, self._password, salt, iterations)
        client_key = mac(self._digest, salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        final = f"{_FINAL_WITHOUT_PROOF},r={nonce}"
        everything = f"{self._first},{challenge},{final}".encode()
        signature = mac(self._digest, stored_key, everything)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = mac(self._digest, salted, b"Server Key")
        self._signature = mac(self._digest, server_key, everything)
        return f"{final},p={b64encode(proof).decode()}".encode()

    def _verify(self, challenge: str) -> None:
        fields = _fields(challenge)
        if "e" in fields:
            raise SaslFailed(f"it answered {fields['e']!r}")
        assert self._signature is not None
        if not hmac.compare_digest(_decoded(fields, "v"), self._signature):
            raise SaslFailed("it does not know the password: its signature is wrong")


def _fields(said: str) -> dict[str, str]:
    found = {}
    for part in said.split(","):
        name, equals, value = part.partition("=")
        if len(name) != 1 or not equals:
            raise SaslFailed(f"{part[:40]!r} is not part of a SCRAM message")
        found[name] = value
    return found


def _decoded(fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (KeyError, ValueError):  # also of text that is not ASCII
        raise SaslFailed(f"its message has no {name}= in base64") from None


def _iterations(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise SaslFailed(f"its number of iterations is {text[:40]!r}")
    iterations = int(text)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise SaslFailed(
            f"it wants {iterations} iterations; from {ITERATIONS_MIN} to {ITERATIONS_MAX} are taken"
        )
    return iterations
