"""Delegation tokens (KIP-48): the secret of each, and how it logs in by SCRAM.

A token's secret is an HMAC of its id under `delegation.token.secret.key`. So only ids are in the
metadata, and every node with the same key knows the secrets.
"""

from __future__ import annotations

import hmac
from base64 import b64encode

from headwater.protocol.records.metadata_security import DelegationTokenRecord
from headwater.security.principal import Principal
from headwater.security.sasl.scram import ITERATIONS_MIN, salted_password, scram_keys
from headwater.security.sasl.scram_server import ScramSecret

SECRET_KEY = "delegation.token.secret.key"
_SALT_BYTES = 32
_CACHED_MAX = 10_000


def token_hmac(token_id: str, key: str) -> bytes:
    return hmac.digest(key.encode(), token_id.encode(), "sha512")


def parse_principal(text: str) -> Principal:
    """Reads a principal of a record, such as `User:alice`."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def has_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


class TokenSecrets:
    """The credentials with which tokens log in: the id is the user, the HMAC in base64 the
    password."""

    __slots__ = ("_cached", "_key")

    def __init__(self, key: str) -> None:
        self._key = key
        # Salting a password takes milliseconds; a token's never changes.
        self._cached: dict[tuple[str, str], tuple[bytes, bytes, bytes]] = {}

    def find(
        self, token: DelegationTokenRecord | None, mechanism: str, now_ms: int
    ) -> ScramSecret | None:
        """Returns the credential of a token; None if it has expired. The principal is the owner,
        marked as logged in by a token."""
        if token is None or has_expired(token, now_ms):
            return None
        salt, stored, server = self._keys(token.token_id, mechanism)
        owner = parse_principal(token.owner)._replace(is_token=True)
        return ScramSecret(
            salt, stored, server, ITERATIONS_MIN, owner, int(token.expiration_timestamp)
        )

    def _keys(self, token_id: str, mechanism: str) -> tuple[bytes, bytes, bytes]:
        known = self._cached.get((token_id, mechanism))
        if known is None:
            # Any salt will do for a secret of 64 random bytes; the same one on every node.
            salt = hmac.digest(self._key.encode(), b"salt " + token_id.encode(), "sha256")
            password = b64encode(token_hmac(token_id, self._key))
            salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
            known = (salt[:_SALT_BYTES], *scram_keys(mechanism, salted))
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[token_id, mechanism] = known
        return known
