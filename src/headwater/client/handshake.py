"""How a connection begins: TCP, TLS, then ApiVersions in the newest version that the broker knows,
then who we are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headwater import __version__
from headwater.client.connection import Connection
from headwater.client.errors import ClientError, Disconnected, NotKafka, RequestTimedOut, error_for
from headwater.client.measures import Traffic
from headwater.errors import ErrorCode
from headwater.io import Address, Host, Stream
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from headwater.client.security import Login, Security


async def connect(
    host: Host,
    address: Address,
    *,
    node_id: int,
    client_id: str,
    timeout_ms: int,
    request_timeout_ms: int,
    traffic: Traffic | None = None,
    security: Security | None = None,
) -> Connection:
    """A connection that can be used, within the time; else NotKafka, AuthenticationFailed, or a
    RetriableError."""
    made: list[Connection] = []

    def receiver(stream: Stream) -> Connection:
        made.append(
            Connection(
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
            await _agree(made[0], timeout_ms)
            if security is not None and security.login is not None:
                await _log_in(made[0], security.login, host, timeout_ms)
            is_usable = True
    except (TimeoutError, RequestTimedOut):
        how = "answered nothing" if made else "took no connection"
        raise Disconnected(f"{who}: {how} within {timeout_ms} ms") from None
    except OSError as error:
        raise _explained(who, error) from None
    except Disconnected:
        fault = made[0].fault if made else None
        if fault is not None and not isinstance(fault, ConnectionResetError):
            raise _explained(who, fault) from None
        if tls is not None and made and not made[0].versions:
            raise Disconnected(
                f"{who}: it closed the connection after the TLS handshake; does it want a "
                "certificate of ours (ssl_keystore_location)?"
            ) from None
        raise
    finally:
        if made and not is_usable:
            made[0].close()
    return made[0]


def _explained(who: str, error: OSError) -> ClientError:
    if type(error).__module__ == "ssl":  # which is not loaded for those who do without
        from headwater.client.security import tls_failed

        return tls_failed(who, error)  # type: ignore[arg-type]  # it is an SSLError
    return Disconnected(f"{who}: {error.strerror.lower() if error.strerror else error}")


async def _log_in(connection: Connection, login: Login, host: Host, timeout_ms: int) -> None:
    from headwater.client.authentication import authenticate

    lifetime_ms = await authenticate(connection, login, host.random, timeout_ms)
    if lifetime_ms > 0:
        connection.trusted_until = host.clock.monotonic() + lifetime_ms / 1000


async def _agree(connection: Connection, timeout_ms: int) -> None:
    """Learns the versions of the broker."""
    request = ApiVersionsRequest(
        client_software_name="headwater", client_software_version=__version__
    )
    newest = APIS[ApiKey.API_VERSIONS].advertised
    assert newest is not None
    answer = await connection.exchange(request, newest[1], timeout_ms)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = await connection.exchange(request, _known_there(answer), timeout_ms)
    if answer.error_code:
        raise error_for(answer.error_code, f"{connection.address} refused ApiVersions")
    versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    if ApiKey.METADATA not in versions:
        raise NotKafka(f"{connection.address} does not serve clients: is it a controller?")
    connection.features = {each.name: each.max_version_level for each in answer.finalized_features}
    connection.versions = versions


def _known_there(answer: ApiVersionsResponse) -> int:
    """The newest version of ApiVersions itself that a broker says it knows."""
    for each in answer.api_keys:
        if each.api_key == ApiKey.API_VERSIONS:
            return max(0, min(each.max_version, ApiVersionsRequest.VERSIONS[1]))
    return 0
