"""A network that can be cut off from everybody, for tests of clusters.

Nothing more is sent or received while it is cut, and nobody is told: connections stay open on both
sides, as when packets are lost, and new ones are not answered. What is written meanwhile is sent
afterwards, as TCP would. Only `headwater.testing` uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.io.disk import FileSlice, close_slices
from headwater.io.network import NO_RECEIVER, SYSTEM_SOCKETS, Receiver, SocketOptions, Stream
from headwater.io.sockets import SocketListener, SocketNetwork

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.io.tls import Tls


class CuttableNetwork:
    """The network of this host, with a switch."""

    __slots__ = ("_network", "_switch")

    def __init__(self) -> None:
        self._network = SocketNetwork()
        self._switch = _Switch()

    def cut_off(self) -> None:
        self._switch.connected.clear()
        for link in self._switch.links:
            link.hold()

    def reconnect(self) -> None:
        self._switch.connected.set()
        for link in list(self._switch.links):
            link.release()

    def host_name(self) -> str:
        return self._network.host_name()

    def bind(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        options: SocketOptions = SYSTEM_SOCKETS,
    ) -> SocketListener:
        return self._network.bind(
            host, port, lambda stream: _Link(self._switch, stream, accept), options
        )

    async def connect(
        self, host: str, port: int, receiver: Callable[[Stream], Receiver], tls: Tls | None = None
    ) -> Stream:
        await self._switch.connected.wait()
        links: list[_Link] = []

        def link(stream: Stream) -> Receiver:
            links.append(_Link(self._switch, stream, receiver))
            return links[0]

        await self._network.connect(host, port, link, tls)
        return links[0]


class _Switch:
    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self.links: dict[_Link, None] = {}  # in the order they were made

    @property
    def is_cut(self) -> bool:
        return not self.connected.is_set()


class _Link:
    """A connection: the stream that the owner sees, and the receiver that the socket sees."""

    __slots__ = (
        "_closed",
        "_closing",
        "_held",
        "_receiver",
        "_stream",
        "_switch",
        "_wants_to_read",
        "local",
        "peer",
    )

    def __init__(
        self, switch: _Switch, stream: Stream, receiver: Callable[[Stream], Receiver]
    ) -> None:
        self._switch = switch
        self._stream = stream
        self._held: list[Buffer | FileSlice] = []
        self._wants_to_read = True
        self._closing = False
        self._closed = False  # the owner has been told
        self.local = stream.local
        self.peer = stream.peer
        switch.links[self] = None
        self._receiver: Receiver = NO_RECEIVER
        self._receiver = receiver(self)
        if switch.is_cut:  # after the socket has started to read, and before it does
            asyncio.get_running_loop().call_soon(self.hold)

    # The switch

    def hold(self) -> None:
        if self._switch.is_cut:
            self._stream.pause()

    def release(self) -> None:
        if self._closed:
            self._stream.abort()
            return
        if self._held:
            held, self._held = self._held, []
            self._stream.send(held)
        if self._closing:
            self._stream.close()
        elif self._wants_to_read:
            self._stream.resume()

    # As a stream

    def send(self, parts: Sequence[Buffer | FileSlice]) -> None:
        if self._closed:
            close_slices(parts)
        elif self._switch.is_cut:
            self._held += parts
        else:
            self._stream.send(parts)

    def expect(self) -> None:
        if not self._switch.is_cut:
            self._stream.expect()

    def put_first(self) -> None:
        self._stream.put_first()

    def queued_bytes(self) -> int:
        held = sum(
            len(part) if isinstance(part, FileSlice) else memoryview(part).nbytes
            for part in self._held
        )
        return held + self._stream.queued_bytes()

    def pause(self) -> None:
        self._wants_to_read = False
        self._stream.pause()

    def resume(self) -> None:
        self._wants_to_read = True
        if not self._switch.is_cut:
            self._stream.resume()

    def turn(self, seconds: float) -> bool:
        return not self._switch.is_cut and self._stream.turn(seconds)

    def close(self) -> None:
        if not self._switch.is_cut:
            self._stream.close()
        elif self._held:
            self._closing = True
        else:
            self.abort()

    def abort(self) -> None:
        if not self._switch.is_cut:
            self._stream.abort()
        elif not self._closed:
            # The peer learns of it when the network is whole again; the owner does now.
            close_slices(self._held)
            self._held = []
            asyncio.get_running_loop().call_soon(self._tell_closed, None)

    def _tell_closed(self, error: OSError | None) -> None:
        if not self._closed:
            self._closed = True
            receiver, self._receiver = self._receiver, NO_RECEIVER
            receiver.closed(error)

    # As a receiver

    def buffer(self) -> memoryview:
        return self._receiver.buffer()

    def received(self, count: int) -> None:
        self._receiver.received(count)

    def drained(self) -> None:
        self._receiver.drained()

    def ended(self) -> None:
        self._receiver.ended()

    def closed(self, error: OSError | None) -> None:
        self._switch.links.pop(self, None)
        self._tell_closed(error)
