"""The checks that a connection passes before it is served: TLS, a certificate, a login.

A listener without protection has no gate, and its connections cost nothing for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl

    from headwater.net.connection import Connection


class Gate(Protocol):
    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS settings of new connections."""

    def opened(self, connection: Connection) -> None:
        """Prepares a connection; nothing of it has been read. Raises CloseConnection, where no TLS
        comes first."""

    def secured(self, connection: Connection, certificate: bytes | None) -> None:
        """Takes note of the certificate that the peer has shown. Raises CloseConnection."""
