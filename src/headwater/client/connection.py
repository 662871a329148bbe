"""Connections of a client: a peer's connection whose errors are the client's, with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headwater.client.errors import (
    AuthenticationFailed,
    ClientError,
    Disconnected,
    NotKafka,
    RequestTimedOut,
    UnsupportedVersion,
    WrongListener,
    error_for,
)
from headwater.io import Address, Host
from headwater.net import peer
from headwater.net.peer import PeerConnection, PeerError
from headwater.net.peer import errors as peer_errors
from headwater.net.peer.connection import Prepared
from headwater.protocol.apis import ApiKey

if TYPE_CHECKING:
    from headwater.net.peer import PeerSecurity
    from headwater.observability.measures import Traffic

__all__ = ["Connection", "Prepared", "client_error", "connect"]

Connection: TypeAlias = PeerConnection[ClientError]

# Subclasses first: the first match counts.
_CLASSES: tuple[tuple[type[PeerError], type[ClientError]], ...] = (
    (peer_errors.Disconnected, Disconnected),
    (peer_errors.TimedOut, RequestTimedOut),
    (peer_errors.NotKafka, NotKafka),
    (peer_errors.UnsupportedVersion, UnsupportedVersion),
    (peer_errors.AuthenticationFailed, AuthenticationFailed),
)
_ADVICE: tuple[tuple[type[PeerError], str], ...] = (
    (
        peer_errors.ClosedAfterTls,
        "; does it require a client certificate (ssl_keystore_location)?",
    ),
    (
        peer_errors.ClosedBeforeVersions,
        "; is it a listener for TLS or SASL, or another service?",
    ),
    (
        peer_errors.ClosedAtFirstRequest,
        "; if its listener requires a login, set security_protocol and sasl_mechanism",
    ),
    (peer_errors.NotKafka, " in the clear: name the port of a PLAINTEXT listener"),
)


async def connect(
    host: Host,
    address: Address,
    *,
    node_id: int,
    client_id: str,
    timeout_ms: int,
    request_timeout_ms: int,
    traffic: Traffic | None = None,
    security: PeerSecurity | None = None,
    asks_controllers: bool = False,
) -> Connection:
    """Returns a connection that is ready for requests; otherwise raises NotKafka, WrongListener,
    AuthenticationFailed or a RetriableError."""
    try:
        connection: Connection = await peer.connect(
            host,
            address,
            node_id=node_id,
            client_id=client_id,
            timeout_ms=timeout_ms,
            request_timeout_ms=request_timeout_ms,
            as_error=client_error,
            traffic=traffic,
            security=security,
        )
    except PeerError as error:
        raise client_error(error) from None
    # Each kind of listener has an API that the other never serves.
    if ApiKey.METADATA in connection.versions:
        if asks_controllers:
            connection.close()
            raise WrongListener(
                f"{connection.address} is a broker's listener, and bootstrap_controllers names "
                "controllers: pass it as bootstrap, or name a listener of "
                "controller.listener.names"
            )
    elif ApiKey.VOTE not in connection.versions:
        connection.close()
        raise NotKafka(f"{connection.address} serves neither clients nor controllers")
    elif not asks_controllers:
        connection.close()
        raise WrongListener(
            f"{connection.address} is a controller's listener, which serves no producers and "
            "consumers: name a broker's listener; Admin takes controllers as bootstrap_controllers"
        )
    return connection


def client_error(error: PeerError) -> ClientError:
    """Converts an error of a connection to the client's, and adds what a user can do about it."""
    if isinstance(error, peer_errors.Refused):
        return error_for(error.code, error.about, error.detail)
    if isinstance(error, peer_errors.TlsFailed):
        from headwater.client.security import tls_failed  # loads ssl

        return tls_failed(error.who, error.error)
    made = next((ours for theirs, ours in _CLASSES if isinstance(error, theirs)), ClientError)
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
    return made(f"{error}{advice}")
