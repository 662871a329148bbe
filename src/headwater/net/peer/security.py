"""The identity that one end of a connection presents: a TLS context and a SASL login."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from headwater.io import Host
    from headwater.io.tls import Tls
    from headwater.security.sasl.client import SaslClient

_NONCE_BITS = 160

TokenSource = Callable[["Host"], Awaitable[str]]
"""Returns a bearer token for one connection. What it raises is raised by `connect`."""


@dataclass(frozen=True, slots=True)
class Login:
    """A SASL mechanism and its credentials; each connection performs its own exchange."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    token: TokenSource | None = None
    extensions: Mapping[str, str] | None = None

    async def begin(self, host: Host) -> SaslClient:
        from headwater.security.sasl.client import BearerClient, PlainClient
        from headwater.security.sasl.scram import ScramClient

        if self.mechanism == "PLAIN":
            return PlainClient(self.username, self.password)
        if self.mechanism == "OAUTHBEARER":
            assert self.token is not None
            return BearerClient(await self.token(host), dict(self.extensions or {}))
        nonce = f"{host.random.getrandbits(_NONCE_BITS):x}"
        return ScramClient(
            self.mechanism, self.username, self.password, nonce, is_token=self.is_token
        )


PeerSource = Callable[[], "PeerSecurity | None"]
"""Returns the security of the next connection: it may change while a node runs."""


def no_security() -> None:
    """The source of connections to PLAINTEXT listeners."""


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    context: ssl.SSLContext | None = None
    login: Login | None = None
    # Where it is set, connections log in again before their login expires (KIP-368), with what it
    # returns by then. A pool of connections replaces them instead.
    renewed_by: PeerSource | None = None

    def tls(self, host: str) -> Tls | None:
        """Returns the TLS settings for a connection to this host name."""
        if self.context is None:
            return None
        from headwater.io.tls import Tls

        return Tls(self.context, host)
