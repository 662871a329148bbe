"""Requests of this broker to other brokers: markers of transactions, and their verification.

There is one connection to each broker, made when it is first needed, to the listener that brokers
use among themselves. Nothing is repeated here: a request that fails is reported at once, and its
owner, which knows whether it still matters and which node leads by then, sends it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.config import NodeConfig
from headwater.io import Address, Host
from headwater.metadata import Delta, Image
from headwater.net.peer import (
    PeerConnection,
    PeerError,
    PeerSource,
    as_is,
    connect,
    no_security,
)
from headwater.net.peer.errors import Disconnected, UnsupportedVersion
from headwater.protocol import Message
from headwater.protocol.apis import APIS

_CONNECT_TIMEOUT_MS = 5_000
# Requests that wait for one connection; each owner of requests has only a few under way.
_WAITING_MAX = 1000

Peer = PeerConnection[PeerError]
Done = Callable[[Any, PeerError | None], None]


class BrokerChannel:
    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        *,
        name: str,
        security: PeerSource = no_security,
    ) -> None:
        """`name` says in the other broker's log what the connections are for."""
        self._host = host
        self._security = security
        self._client_id = f"broker-{config.node_id}-{name}"
        self._listener = config.inter_broker_listener_name
        self._request_timeout_ms: int = config.request_timeout_ms
        self._image = Image()
        self._links: dict[int, _Link] = {}

    def follow(self, image: Image, delta: Delta) -> None:
        """Closes connections to brokers that are gone or have moved: what waits for a response
        there is told at once."""
        self._image = image
        for node_id in sorted(delta.brokers):
            link = self._links.get(node_id)
            if link is not None and link.address != self._address(node_id):
                del self._links[node_id]
                link.close(f"node {node_id} has moved")

    def _address(self, node_id: int) -> Address | None:
        broker = self._image.brokers.get(node_id)
        at = None if broker is None else broker.endpoint(self._listener)
        return None if at is None else Address(at.host, at.port)

    def post(self, node_id: int, request: Message, done: Done) -> None:
        """Sends a request, in the newest version that both brokers know. `done` is called once,
        with the response or an error, possibly before this returns."""
        link = self._links.get(node_id)
        if link is None:
            address = self._address(node_id)
            if address is None:
                done(None, PeerError(f"node {node_id} has no listener for brokers"))
                return
            link = _Link(
                self._host,
                node_id,
                address,
                self._client_id,
                self._request_timeout_ms,
                self._security,
            )
            self._links[node_id] = link
        link.post(request, done)

    def ask(self, node_id: int, request: Message) -> asyncio.Future[Any]:
        """Returns a future for the response; it fails with a PeerError."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(response: Any, error: PeerError | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(response)

        self.post(node_id, request, done)
        return answer

    def stop(self) -> list[asyncio.Task[None]]:
        """Closes all connections; returns the tasks that are still ending."""
        links, self._links = self._links, {}
        ending = [link.connecting for link in links.values() if link.connecting is not None]
        for link in links.values():
            link.close("this broker stops")
        return ending


class _Link:
    """The connection to one broker at one address."""

    def __init__(
        self,
        host: Host,
        node_id: int,
        address: Address,
        client_id: str,
        request_timeout_ms: int,
        security: PeerSource,
    ) -> None:
        self._security = security
        self.address = address
        self.connecting: asyncio.Task[None] | None = None
        self._host = host
        self._node_id = node_id
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._peer: Peer | None = None
        self._waiting: list[tuple[Message, Done]] = []  # for the connection

    def post(self, request: Message, done: Done) -> None:
        peer = self._peer
        if peer is not None and peer.is_open:
            self._send(peer, request, done)
        elif len(self._waiting) >= _WAITING_MAX:
            done(None, Disconnected(f"node {self._node_id}: too many requests wait"))
        else:
            self._waiting.append((request, done))
            if self.connecting is None:
                self.connecting = asyncio.ensure_future(self._connect())

    def _send(self, peer: Peer, request: Message, done: Done) -> None:
        key = type(request).API
        assert key is not None, f"{type(request).__name__} is not a request"
        version = peer.version(key)
        if version is None:
            text = f"node {self._node_id} does not serve {APIS[key].name} in a known version"
            done(None, UnsupportedVersion(text))
            return
        peer.post(request, version, done, timeout_ms=self._request_timeout_ms)

    async def _connect(self) -> None:
        try:
            peer = await connect(
                self._host,
                self.address,
                node_id=self._node_id,
                client_id=self._client_id,
                timeout_ms=_CONNECT_TIMEOUT_MS,
                request_timeout_ms=self._request_timeout_ms,
                as_error=as_is,
                security=self._security(),
            )
        except PeerError as error:
            self.connecting = None
            self._fail(error)
            return
        self.connecting = None
        peer.put_first()
        self._peer = peer
        waiting, self._waiting = self._waiting, []
        for request, done in waiting:
            self._send(peer, request, done)

    def _fail(self, error: PeerError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(None, error)

    def close(self, why: str) -> None:
        if self.connecting is not None:
            self.connecting.cancel()
            self.connecting = None
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        self._fail(Disconnected(why))
