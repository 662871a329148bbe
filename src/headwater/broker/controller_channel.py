"""Requests to the active controller, wherever it is.

A node asks for itself (registration, heartbeats, in-sync replicas) and for its clients, whose
requests travel in envelopes. If this node is the active controller, its handlers are called without
the network. Otherwise the requests go over a connection to the controller's listener and follow
the leadership: when the leader changes, when a node answers NOT_CONTROLLER, and when a connection
ends, the request is sent again, to the controller of that time, until its deadline.

A request may have been carried out before the connection ended. What nodes ask for is safe to
repeat: it has an incarnation id, a broker epoch or a partition epoch, or skips a block of producer
ids. Clients' requests are repeated as well, as Kafka does it: a client that saw its own connection
end would send them again, with the same result (TOPIC_ALREADY_EXISTS for a topic just created).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from headwater.broker.context import Context
from headwater.broker.controller_role import HANDLERS, ControllerRole
from headwater.broker.envelope import enclose, has_error, take_out_response
from headwater.broker.metadata_log import MetadataLog, QuorumLeader
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, Host
from headwater.net.connection import CloseConnection
from headwater.net.peer import (
    PeerConnection,
    PeerError,
    PeerSource,
    as_is,
    connect,
    no_security,
)
from headwater.net.peer.errors import Disconnected, UnsupportedVersion
from headwater.protocol import DecodeError, Message
from headwater.protocol.apis import APIS, Versions

_FORWARD_TIMEOUT_MS = 60_000  # Kafka's
_CONNECT_TIMEOUT_MS = 5_000
_BACKOFF_SECONDS = 0.02
_BACKOFF_SECONDS_MAX = 0.5
_OWN_IN_FLIGHT_MAX = 16
_FORWARDED_IN_FLIGHT_MAX = 32
_CORRELATION_MAX = 2**31 - 1

Peer = PeerConnection[PeerError]


class _NotController(Exception):
    """The node that was asked is not the active controller."""


class ControllerChannel:
    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataLog,
        role: ControllerRole | None,
        security: PeerSource = no_security,
    ) -> None:
        """`role` is this node's controller, if it has one."""
        self._host = host
        self._node_id = config.node_id
        self._metadata = metadata
        self._role = role
        # Two connections, because a controller serves the requests of each in order: a client's
        # large request must not delay a heartbeat.
        self._own = _Link(host, config, _OWN_IN_FLIGHT_MAX, security)
        self._forwarded = _Link(host, config, _FORWARDED_IN_FLIGHT_MAX, security)
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._correlation_id = 0
        metadata.on_leader_changed(self._on_leader_changed)

    @property
    def controller_versions(self) -> dict[int, Versions] | None:
        """The versions that the active controller serves, by API key; None while unknown."""
        leader = self._metadata.leader
        if leader is None:
            return None
        if leader.node_id == self._node_id:
            return None if self._role is None else self._role.served
        return self._forwarded.versions_of(leader) or self._own.versions_of(leader)

    async def ask(self, request: Message, *, timeout_ms: int) -> Any:
        """Returns the controller's response to a request of this node, in the newest version that
        both know. Raises REQUEST_TIMED_OUT if there is none in time."""
        key = request.API
        assert key is not None
        is_administrative = APIS[key].on_broker

        async def here(role: ControllerRole) -> Message:
            return await role.answer(Context.internal(role.served[key][1]), request)

        async def there(peer: Peer, timeout_ms: int) -> Message:
            response = await peer.ask(request, timeout_ms=timeout_ms)
            assert isinstance(response, Message)
            return response

        def is_refused(response: Message) -> bool:
            if is_administrative:
                return has_error(response, ErrorCode.NOT_CONTROLLER)
            # Inside of AlterPartition the code has another meaning, for one partition.
            return getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER

        link = self._forwarded if is_administrative else self._own
        return await self._until_answered(link, here, there, is_refused, timeout_ms)

    async def forward(self, context: Context, request: Message) -> Message:
        """Returns the controller's response to a client's request, in the client's version."""
        key = request.API
        assert key is not None

        async def here(role: ControllerRole) -> Message:
            return await role.answer(context, request)

        async def there(peer: Peer, timeout_ms: int) -> Message:
            self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MAX
            correlation_id = self._correlation_id
            envelope = enclose(context, request, correlation_id)
            response = await peer.ask(envelope, timeout_ms=timeout_ms)
            if response.error_code == ErrorCode.NOT_CONTROLLER:
                raise _NotController
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                raise CloseConnection(
                    f"{APIS[key].name} version {context.version} is not supported by the active "
                    f"controller at {peer.address}"
                )
            try:
                if response.error_code or response.response_data is None:
                    raise DecodeError(f"error code {response.error_code}")
                return take_out_response(
                    key, context.version, correlation_id, response.response_data
                )
            except DecodeError as error:
                # A fault of the cluster, not of the client: Kafka hides it, too.
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the controller at {peer.address} did not answer a forwarded request: {error}",
                ) from None

        try:
            return await self._until_answered(
                self._forwarded,
                here,
                there,
                lambda response: has_error(response, ErrorCode.NOT_CONTROLLER),
                _FORWARD_TIMEOUT_MS,
            )
        except ApiError as refusal:
            module = import_module(f"{HANDLERS}.{APIS[key].module}")
            refused = module.refuse(context, request, refusal)
            assert isinstance(refused, Message)
            return refused

    async def _until_answered(
        self,
        link: _Link,
        here: Callable[[ControllerRole], Awaitable[Message]],
        there: Callable[[Peer, int], Awaitable[Message]],
        is_refused: Callable[[Message], bool],
        timeout_ms: int,
    ) -> Message:
        now = self._host.clock.monotonic
        deadline = now() + timeout_ms / 1000
        backoff = _BACKOFF_SECONDS
        failure = ""  # the last one that says why
        while (left := deadline - now()) > 0:
            leader = self._metadata.leader
            try:
                if leader is None:
                    failure = "no active controller is known"
                elif leader.node_id != self._node_id and leader.address is None:
                    failure = f"the address of controller {leader.node_id} is not known"
                else:
                    async with asyncio.timeout(left):
                        if leader.address is None:
                            assert self._role is not None, "a node without the role leads"
                            response = await here(self._role)
                        else:
                            response = await link.use(leader, leader.address, there, deadline)
                    if not is_refused(response):
                        return response
                    raise _NotController
            except _NotController:
                assert leader is not None
                failure = f"node {leader.node_id} is not the active controller"
            except UnsupportedVersion as error:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
            except PeerError as error:
                failure = str(error)
            except TimeoutError:
                assert leader is not None
                failure = failure or f"node {leader.node_id} did not answer"
                break
            await self._news(leader, min(backoff, deadline - now()))
            backoff = min(2 * backoff, _BACKOFF_SECONDS_MAX)
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"no answer of the active controller within {timeout_ms} ms: {failure}",
        )

    # News of another leader

    def _on_leader_changed(self) -> None:
        leader = self._metadata.leader
        for link in (self._own, self._forwarded):
            link.aim(leader)
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _news(self, asked: QuorumLeader | None, seconds: float) -> None:
        """Waits until another node leads than the one that was asked, or for some time."""
        if self._metadata.leader != asked or seconds <= 0:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            # Not all nodes try again at the same moment.
            async with asyncio.timeout(seconds * self._host.random.uniform(0.8, 1.2)):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(waiter, None)

    def close(self) -> None:
        self._own.aim(None)
        self._forwarded.aim(None)


class _Link:
    """A connection to the node that leads, made when it is needed. Aimed at another node it closes,
    and pending requests fail at once."""

    def __init__(
        self, host: Host, config: NodeConfig, in_flight_max: int, security: PeerSource
    ) -> None:
        self._host = host
        self._security = security
        self._client_id = str(config.node_id)
        self._request_timeout_ms = config.request_timeout_ms
        self._slots = asyncio.Semaphore(in_flight_max)
        self._leader: QuorumLeader | None = None
        self._peer: Peer | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connected: asyncio.Future[Peer] | None = None

    def versions_of(self, leader: QuorumLeader) -> dict[int, Versions] | None:
        if not _same_node(leader, self._leader) or self._peer is None or not self._peer.is_open:
            return None
        return self._peer.versions

    async def use(
        self,
        leader: QuorumLeader,
        address: Address,
        exchange: Callable[[Peer, int], Awaitable[Message]],
        deadline: float,
    ) -> Message:
        async with self._slots:
            self.aim(leader)
            peer = await self._connection(leader, address)
            left_ms = int((deadline - self._host.clock.monotonic()) * 1000)
            return await exchange(peer, max(1, min(left_ms, self._request_timeout_ms)))

    def aim(self, leader: QuorumLeader | None) -> None:
        if _same_node(leader, self._leader):
            # A node that leads again answers what is in flight: sent a second time, a request that
            # it has carried out would be refused.
            return
        self._leader = leader
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connected is not None and not self._connected.done():
            self._connected.set_exception(Disconnected("another node became the controller"))
        self._connected = None
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def _connection(self, leader: QuorumLeader, address: Address) -> Peer:
        if self._peer is not None and self._peer.is_open:
            return self._peer
        if self._connected is None:
            connected: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
            connected.add_done_callback(_note_exception)
            self._connected = connected
            self._connecting = asyncio.ensure_future(self._connect(leader, address, connected))
        return await asyncio.shield(self._connected)

    async def _connect(
        self, leader: QuorumLeader, address: Address, connected: asyncio.Future[Peer]
    ) -> None:
        try:
            peer = await connect(
                self._host,
                address,
                node_id=leader.node_id,
                client_id=self._client_id,
                timeout_ms=_CONNECT_TIMEOUT_MS,
                request_timeout_ms=self._request_timeout_ms,
                as_error=as_is,
                security=self._security(),
            )
        except PeerError as error:
            self._connected = self._connecting = None
            if not connected.done():
                connected.set_exception(error)
            return
        self._connected = self._connecting = None
        peer.put_first()
        self._peer = peer
        if not connected.done():
            connected.set_result(peer)


def _same_node(one: QuorumLeader | None, other: QuorumLeader | None) -> bool:
    """Returns whether both are the same node at the same address, in whatever epoch."""
    if one is None or other is None:
        return one is other
    return (one.node_id, one.address) == (other.node_id, other.address)


def _note_exception(connected: asyncio.Future[Peer]) -> None:
    """Marks a failure as seen: all that waited for the connection may be gone."""
    if not connected.cancelled():
        connected.exception()
