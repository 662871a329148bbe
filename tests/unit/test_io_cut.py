"""A network that is cut off is silent, and loses nothing that was written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.io import Receiver, Stream
from headwater.io.cut import CuttableNetwork
from headwater.io.sockets import SocketNetwork

_LONG = 5.0
_SHORT = 0.05  # long enough for loopback, where everything that can come has come


class Ear:
    """Remembers what it hears."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.heard = b""
        self.is_closed = asyncio.Event()
        self.changed = asyncio.Event()
        self._memory = memoryview(bytearray(100))

    def buffer(self) -> memoryview:
        return self._memory

    def received(self, count: int) -> None:
        self.heard += bytes(self._memory[:count])
        self.changed.set()

    def drained(self) -> None: ...

    def ended(self) -> None:
        self.stream.close()

    def closed(self, error: OSError | None) -> None:
        self.is_closed.set()

    async def hears(self, what: bytes) -> None:
        async with asyncio.timeout(_LONG):
            while self.heard != what:
                self.changed.clear()
                await self.changed.wait()


class Pair:
    """A node that can be cut off, and somebody who is connected to it."""

    def __init__(self) -> None:
        self.network = CuttableNetwork()
        self.accepted: asyncio.Queue[Ear] = asyncio.Queue()
        self.listener = self.network.bind("127.0.0.1", 0, self._accept)
        self.listener.start()

    def _accept(self, stream: Stream) -> Receiver:
        ear = Ear(stream)
        self.accepted.put_nowait(ear)
        return ear

    async def somebody(self) -> Ear:
        ears: list[Ear] = []

        def made(stream: Stream) -> Receiver:
            ears.append(Ear(stream))
            return ears[0]

        await SocketNetwork().connect(*self.listener.address, made)
        return ears[0]


def with_pair(story: Callable[[Pair], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = Pair()
        try:
            await story(pair)
        finally:
            pair.listener.close()

    asyncio.run(run())


def test_nothing_passes_until_it_is_connected_again() -> None:
    async def story(pair: Pair) -> None:
        far = await pair.somebody()
        near = await pair.accepted.get()
        pair.network.cut_off()
        near.stream.send([b"from inside"])
        far.stream.send([b"from outside"])
        await asyncio.sleep(_SHORT)
        assert (near.heard, far.heard) == (b"", b"")
        assert near.stream.queued_bytes() == len(b"from inside")
        pair.network.reconnect()
        await near.hears(b"from outside")
        await far.hears(b"from inside")
        near.stream.abort()
        async with asyncio.timeout(_LONG):
            await far.is_closed.wait()

    with_pair(story)


def test_the_peer_does_not_see_that_a_connection_was_closed() -> None:
    async def story(pair: Pair) -> None:
        far = await pair.somebody()
        near = await pair.accepted.get()
        pair.network.cut_off()
        near.stream.abort()
        async with asyncio.timeout(_LONG):
            await near.is_closed.wait()  # its owner does
        await asyncio.sleep(_SHORT)
        assert not far.is_closed.is_set()
        pair.network.reconnect()
        async with asyncio.timeout(_LONG):
            await far.is_closed.wait()

    with_pair(story)


def test_what_is_written_before_a_close_arrives() -> None:
    async def story(pair: Pair) -> None:
        far = await pair.somebody()
        near = await pair.accepted.get()
        pair.network.cut_off()
        near.stream.send([b"goodbye"])
        near.stream.close()
        pair.network.reconnect()
        await far.hears(b"goodbye")
        async with asyncio.timeout(_LONG):
            await far.is_closed.wait()

    with_pair(story)


def test_connections_to_others_wait() -> None:
    async def story(pair: Pair) -> None:
        pair.network.cut_off()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(_SHORT):
                await pair.network.connect(*pair.listener.address, Ear)
        pair.network.reconnect()
        stream = await pair.network.connect(*pair.listener.address, Ear)
        near = await pair.accepted.get()
        stream.send([b"hello"])
        await near.hears(b"hello")
        stream.abort()

    with_pair(story)


def test_a_connection_that_comes_while_it_is_cut_off_is_not_answered() -> None:
    async def story(pair: Pair) -> None:
        pair.network.cut_off()
        far = await pair.somebody()
        far.stream.send([b"anybody there?"])
        near = await pair.accepted.get()
        await asyncio.sleep(_SHORT)
        assert near.heard == b""
        pair.network.reconnect()
        await near.hears(b"anybody there?")
        far.stream.abort()

    with_pair(story)
