"""The client's side of an authentication: what it says first, and to each challenge of the server.

A machine of one use: `first`, then `answer` for every challenge until that gives None. What the
server says that it should not say raises `SaslFailed`; that it refuses us is the protocol's to
tell.
"""

from __future__ import annotations

from typing import Protocol


class SaslFailed(Exception):
    """The server does not keep to the mechanism, or cannot prove that it knows the password."""


class SaslClient(Protocol):
    mechanism: str

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Returns the answer to a challenge; None if the server is authentic and wants no more."""


class PlainClient:
    """PLAIN (RFC 4616): the password itself, which requires an encrypted connection."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._said = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._said

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class BearerClient:
    """OAUTHBEARER (RFC 7628): a token that somebody else has signed."""

    mechanism = "OAUTHBEARER"

    def __init__(self, token: str, extensions: dict[str, str] | None = None) -> None:
        said = ["n,,", f"auth=Bearer {token}"]
        said += [f"{name}={value}" for name, value in (extensions or {}).items()]
        self._said = ("\x01".join(said) + "\x01\x01").encode()

    def first(self) -> bytes:
        return self._said

    def answer(self, challenge: bytes) -> bytes | None:
        # A challenge says what is wrong with the token; the server refuses us after this.
        return b"\x01" if challenge else None
