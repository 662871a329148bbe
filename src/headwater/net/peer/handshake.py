"""The start of a connection: TCP, TLS, ApiVersions in the newest version of both ends, SASL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, TypeVar

from headwater import __version__
from headwater.errors import ErrorCode
from headwater.io import Address, Host, Stream
from headwater.net.peer.connection import PeerConnection
from headwater.net.peer.errors import (
    ClosedAfterTls,
    Disconnected,
    NothingListens,
    PeerError,
    Refused,
    TimedOut,
    TlsFailed,
)
from headwater.net.peer.security import Login, PeerSecurity
from headwater.observability.measures import Traffic
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from headwater.security.sasl.client import SaslClient

E = TypeVar("E", bound=Exception)
_RENEW_AT = (0.80, 0.90)  # of the lifetime of a login


async def connect(
    host: Host,
    address: Address,
    *,
    node_id: int,
    client_id: str,
    timeout_ms: int,
    request_timeout_ms: int,
    as_error: Callable[[PeerError], E],
    traffic: Traffic | None = None,
    security: PeerSecurity | None = None,
) -> PeerConnection[E]:
    """Returns a connection that is ready for requests.

    Raises a `PeerError` if there is none within the timeout. The connection itself reports what
    `as_error` makes of its errors; `as_is` keeps them.
    """
    made: list[PeerConnection[E]] = []

    def receiver(stream: Stream) -> PeerConnection[E]:
        made.append(
            PeerConnection(
                stream,
                node_id=node_id,
                address=address,
                clock=host.clock,
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                traffic=traffic,
            )
        )
        return made[0]

    is_usable = False
    tls = None if security is None else security.tls(address.host)
    who = str(address) if node_id < 0 else f"node {node_id} at {address}, its advertised address"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await host.network.connect(address.host, address.port, receiver, tls)
            await _negotiate_versions(made[0], timeout_ms)
            if security is not None and security.login is not None:
                client = await security.login.begin(host)
                await _log_in(made[0], security.login, client, host, timeout_ms)
                if security.renewed_by is not None:
                    _renew_in_time(made[0], security, host, timeout_ms)
            is_usable = True
    except (TimeoutError, TimedOut):
        what = "no response" if made else "no connection"
        raise Disconnected(f"{who}: {what} within {timeout_ms} ms") from None
    except OSError as error:
        raise _failed(who, error) from None
    except Disconnected:
        fault = made[0].fault if made else None
        if fault is not None and not isinstance(fault, ConnectionResetError):
            raise _failed(who, fault) from None
        if tls is not None and made and not made[0].versions:
            raise ClosedAfterTls(
                f"{who}: it closed the connection after the TLS handshake"
            ) from None
        raise
    finally:
        if made and not is_usable:
            made[0].close()
    made[0].as_error = as_error
    return made[0]


def _failed(who: str, error: OSError) -> PeerError:
    if type(error).__module__ == "ssl":  # which is not loaded without need
        return TlsFailed(who, error)  # type: ignore[arg-type]  # it is an SSLError
    kind = NothingListens if isinstance(error, ConnectionRefusedError) else Disconnected
    return kind(f"{who}: {error.strerror.lower() if error.strerror else error}")


async def _negotiate_versions(connection: PeerConnection[E], timeout_ms: int) -> None:
    request = ApiVersionsRequest(
        client_software_name="headwater", client_software_version=__version__
    )
    newest = APIS[ApiKey.API_VERSIONS].advertised
    assert newest is not None
    response = await connection.exchange(request, newest[1], timeout_ms)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        response = await connection.exchange(request, _known_there(response), timeout_ms)
    if response.error_code:
        raise Refused(response.error_code, f"{connection.address} refused ApiVersions")
    connection.features = {
        each.name: each.max_version_level for each in response.finalized_features
    }
    connection.supported_features = {
        each.name: (each.min_version, each.max_version) for each in response.supported_features
    }
    connection.versions = {
        each.api_key: (each.min_version, each.max_version) for each in response.api_keys
    }


def _known_there(response: ApiVersionsResponse) -> int:
    """Returns the newest version of ApiVersions that the peer knows."""
    for each in response.api_keys:
        if each.api_key == ApiKey.API_VERSIONS:
            return max(0, min(each.max_version, ApiVersionsRequest.VERSIONS[1]))
    return 0


async def _log_in(
    connection: PeerConnection[E], login: Login, client: SaslClient, host: Host, timeout_ms: int
) -> None:
    from headwater.net.peer.authentication import authenticate  # loads the mechanisms

    lifetime_ms = await authenticate(connection, login, client, timeout_ms)
    lifetime = lifetime_ms / 1000 if lifetime_ms > 0 else inf
    connection.trusted_until = host.clock.monotonic() + lifetime


def _renewed(security: PeerSecurity) -> PeerSecurity | None:
    """Returns what a connection logs in with again: perhaps another password, but no other user."""
    before, source = security.login, security.renewed_by
    assert before is not None
    assert source is not None
    current = source()
    login = None if current is None else current.login
    if login is None or (login.mechanism, login.username) != (before.mechanism, before.username):
        return None
    return current


def _renew_in_time(
    connection: PeerConnection[E], security: PeerSecurity, host: Host, timeout_ms: int
) -> None:
    """Logs in again on a connection before its login expires, if it does; what is asked meanwhile
    waits."""
    if connection.trusted_until == inf:
        return
    lifetime = connection.trusted_until - host.clock.monotonic()
    delay = max(0.0, lifetime * host.random.uniform(*_RENEW_AT))

    async def renew() -> None:
        current = _renewed(security)
        login = None if current is None else current.login
        if current is None or login is None:
            connection.give_up("this node logs in as another user now")
            return
        try:
            try:
                # Before anything waits: a token may be long in coming.
                async with asyncio.timeout(timeout_ms / 1000):
                    client = await login.begin(host)
            except TimeoutError:
                raise TimedOut(f"no credentials within {timeout_ms} ms") from None
            if not connection.is_open:
                return
            connection.hold()
            await _log_in(connection, login, client, host, timeout_ms)
        except Exception as error:  # the owner's, or ours: either ends the connection
            connection.give_up(f"the login could not be renewed: {error}")
            return
        connection.let_go()
        _renew_in_time(connection, current, host, timeout_ms)

    def begin() -> None:
        if connection.is_open:
            connection.renewal = asyncio.ensure_future(renew())

    asyncio.get_running_loop().call_later(delay, begin)
