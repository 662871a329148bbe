"""How a connection begins: TCP, then ApiVersions in the newest version that the broker knows."""

from __future__ import annotations

import asyncio

from headwater import __version__
from headwater.client.connection import Connection
from headwater.client.errors import Disconnected, NotKafka, RequestTimedOut, error_for
from headwater.client.measures import Traffic
from headwater.errors import ErrorCode
from headwater.io import Address, Host, Stream
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


async def connect(
    host: Host,
    address: Address,
    *,
    node_id: int,
    client_id: str,
    timeout_ms: int,
    request_timeout_ms: int,
    traffic: Traffic | None = None,
) -> Connection:
    """A connection that can be used, within the time; else NotKafka, or a RetriableError."""
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

    who = str(address) if node_id < 0 else f"node {node_id} at {address}, its advertised address"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await host.network.connect(address.host, address.port, receiver)
            await _agree(made[0], timeout_ms)
    except (TimeoutError, RequestTimedOut):
        how = "answered nothing" if made else "took no connection"
        raise Disconnected(f"{who}: {how} within {timeout_ms} ms") from None
    except OSError as error:
        raise Disconnected(f"{who}: {(error.strerror or str(error)).lower()}") from None
    finally:
        if made and not made[0].versions:
            made[0].close()
    return made[0]


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
