"""Failures of a connection to a broker or controller.

The texts name the peer and what it did. They name no setting: a client, whose users can change
settings, adds its advice by the class of the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ErrorCode

if TYPE_CHECKING:
    from ssl import SSLError  # not loaded for those who do without TLS


_DETAILS: dict[int, str] = {
    ErrorCode.ILLEGAL_SASL_STATE: "this listener takes no logins; is it a PLAINTEXT listener?"
}


class PeerError(Exception):
    """A request to a peer failed, or no connection could be made."""


class Disconnected(PeerError):
    """The connection ended before the response arrived; the request may have been carried out."""


class NothingListens(Disconnected):
    """The peer's host is up and refused the connection: no process listens there."""


class ClosedBeforeVersions(Disconnected):
    """The peer closed the connection instead of answering ApiVersions."""


class ClosedAfterTls(ClosedBeforeVersions):
    """The peer closed the connection right after the TLS handshake."""


class ClosedAtFirstRequest(Disconnected):
    """The peer answered ApiVersions and closed the connection at the request that followed."""


class TimedOut(PeerError):
    """No response within the timeout of the request."""


class NotKafka(PeerError):
    """The peer does not speak Kafka's protocol without TLS."""


class UnsupportedVersion(PeerError):
    """The peer does not serve the request in a version that can carry it."""


class Refused(PeerError):
    """The peer answered the handshake with an error code."""

    def __init__(self, code: int, about: str, detail: str | None = None) -> None:
        super().__init__(f"{about}: {detail or _DETAILS.get(code, f'error code {code}')}")
        self.code = code
        self.about = about
        self.detail = detail


class AuthenticationFailed(PeerError):
    """The peer could not prove its identity."""


class TlsFailed(PeerError):
    """The TLS handshake failed."""

    def __init__(self, who: str, error: SSLError) -> None:
        super().__init__(f"{who}: TLS failed: {error.reason or error}")
        self.who = who
        self.error = error
