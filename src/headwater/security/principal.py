"""The sender of a request, also as it travels between nodes (Envelope, KIP-590)."""

from __future__ import annotations

from typing import NamedTuple

from headwater.protocol import DecodeError, decode, encode
from headwater.protocol.records.principal import DefaultPrincipalData

_VERSION = 0
_VERSION_BYTES = 2


class Principal(NamedTuple):
    type: str
    name: str
    is_token: bool = False  # authenticated with a delegation token

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


def encode_principal(principal: Principal) -> bytes:
    """Returns Kafka's default form of a principal: its version in two bytes, then a message."""
    data = DefaultPrincipalData(
        type=principal.type, name=principal.name, token_authenticated=principal.is_token
    )
    return _VERSION.to_bytes(_VERSION_BYTES) + bytes(encode(data, _VERSION))


def decode_principal(data: bytes) -> Principal:
    """Reads what `encode_principal` or Kafka wrote; raises DecodeError if it cannot be read."""
    version = int.from_bytes(data[:_VERSION_BYTES])
    if len(data) < _VERSION_BYTES or version != _VERSION:
        raise DecodeError(f"principal of version {version}, expected {_VERSION}")
    found = decode(DefaultPrincipalData, data, _VERSION, _VERSION_BYTES)
    return Principal(found.type, found.name, found.token_authenticated)
