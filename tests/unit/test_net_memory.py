"""Memory of connections: idle ones hold no buffer, closed ones are freed immediately.

The garbage collector is off in these tests, and nearly so in a node: what only the collector can
free would stay for hours.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import pytest

import headwater
from headwater.client.config import ClientConfig
from headwater.client.connection_pool import ConnectionPool
from headwater.client.errors import ClientError
from headwater.client.metadata import ClusterMetadata
from headwater.io import Address, Host
from headwater.io.buffers import RECEIVE_BUFFERS, BufferPool
from headwater.io.sockets import SocketStream
from headwater.net import Answer, Connection, NetLimits, Server
from headwater.net.connection import PendingResponse
from headwater.net.peer import PeerConnection, PeerError, as_is, connect
from headwater.net.peer.errors import Disconnected
from headwater.protocol.apis import ApiKey
from tests.support.fake_broker import FakeBroker, HangUp

PING = struct.pack(">i4s", 4, b"ping")
COUNTED = (Connection, PeerConnection, SocketStream, socket.socket)


_others = [0]  # buffers that connections of other tests have kept


def lent() -> int:
    return RECEIVE_BUFFERS.lent - _others[0]


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    _others[0] = RECEIVE_BUFFERS.lent
    yield
    gc.enable()


def alive() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, COUNTED))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # what is awaited has no event
            await asyncio.sleep(0.001)


class Echo:
    """A server that answers each frame with itself, or keeps the peer waiting."""

    def __init__(self, limits: NetLimits | None = None) -> None:
        self.server = Server(Host.system(), limits or NetLimits(), lambda _: None)
        self.waiting: list[PendingResponse] = []
        self.answers_at_once = True
        listener = self.server.bind("PLAINTEXT", "127.0.0.1", 0, self.serve)
        self.address = tuple(listener.address)
        self.server.open()

    def serve(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        if self.answers_at_once:
            return (struct.pack(">i", len(frame)) + frame,)
        self.waiting.append(PendingResponse(overlapping=True))
        return self.waiting[-1]

    async def ping(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, PING)
        assert await loop.sock_recv(sock, 100) == PING

    async def open(self, count: int) -> list[socket.socket]:
        made = []
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, self.address)
            made.append(sock)
        return made


def test_an_idle_connection_holds_no_receive_buffer() -> None:
    async def story() -> None:
        echo = Echo()
        peers = await echo.open(50)
        for each in peers:
            await echo.ping(each)
        assert len(echo.server.connections) == 50
        assert lent() == 0
        for each in peers:
            each.close()
        await echo.server.stop(0)

    asyncio.run(story())


def test_a_frame_that_comes_in_pieces_has_a_buffer_until_it_is_served() -> None:
    async def story() -> None:
        echo = Echo()
        (peer,) = await echo.open(1)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(peer, PING + PING[:3])
        assert await loop.sock_recv(peer, 100) == PING
        assert lent() == 1
        await loop.sock_sendall(peer, PING[3:])
        assert await loop.sock_recv(peer, 100) == PING
        assert lent() == 0
        await loop.sock_sendall(peer, PING[:3])
        await until(lambda: lent() == 1)
        peer.close()
        await until(lambda: not echo.server.connections)
        assert lent() == 0
        await echo.server.stop(0)

    asyncio.run(story())


@pytest.mark.parametrize("how", ["close", "reset", "refused", "waiting", "half a frame"])
def test_a_closed_connection_is_gone_without_the_collector(how: str) -> None:
    async def story() -> None:
        echo = Echo()
        before, files = alive(), descriptors()
        for _ in range(10):
            (each,) = await echo.open(1)
            await echo.ping(each)
            loop = asyncio.get_running_loop()
            if how == "reset":
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "refused":
                await loop.sock_sendall(each, b"\xff" * 8)
            elif how == "half a frame":
                await loop.sock_sendall(each, PING[:5])
            elif how == "waiting":
                echo.answers_at_once = False
                await loop.sock_sendall(each, PING)
                await until(lambda: bool(echo.waiting))
                echo.waiting.pop().answer((bytes(1_000_000),))  # it will never be read
                echo.answers_at_once = True
            each.close()
            await until(lambda: not echo.server.connections)
        del each
        assert alive() == before
        assert descriptors() == files
        assert lent() == 0
        await echo.server.stop(0)

    asyncio.run(story())


def test_a_closed_connection_leaves_the_queue_for_room() -> None:
    """Room that comes free is for those who still wait, not for one that has gone meanwhile."""
    size = 100_000

    async def story() -> None:
        echo = Echo(NetLimits(receiving_bytes_max=size))
        loop = asyncio.get_running_loop()
        first, second, third = await echo.open(3)
        header = struct.pack(">i", size)
        await loop.sock_sendall(first, header + bytes(10))
        await until(lambda: lent() == 0 and len(echo.server.connections) == 3)
        for number, each in enumerate((second, third), 1):
            await loop.sock_sendall(each, header + bytes(10))
            await until(lambda number=number: lent() == number)  # type: ignore[misc]
        list(echo.server.connections)[1].stream.abort()
        await until(lambda: len(echo.server.connections) == 2)
        await loop.sock_sendall(first, bytes(size - 10))
        await loop.sock_sendall(third, bytes(size - 10))
        async with asyncio.timeout(20):
            assert await loop.sock_recv(third, 4) == header
        for each in (first, second, third):
            each.close()
        await echo.server.stop(0)

    asyncio.run(story())


def test_room_that_comes_free_is_for_all_it_suffices_for() -> None:
    size = 300_000
    small = 100_000

    async def story() -> None:
        echo = Echo(NetLimits(receiving_bytes_max=size))
        loop = asyncio.get_running_loop()
        first, slow, quick = await echo.open(3)
        await loop.sock_sendall(first, struct.pack(">i", size) + bytes(10))
        await until(lambda: lent() == 0 and len(echo.server.connections) == 3)
        for number, each in enumerate((slow, quick), 1):
            await loop.sock_sendall(each, struct.pack(">i", small) + bytes(10))
            await until(lambda number=number: lent() == number)  # type: ignore[misc]
        first.close()
        await loop.sock_sendall(quick, bytes(small - 10))
        async with asyncio.timeout(20):
            assert await loop.sock_recv(quick, 4) == struct.pack(">i", small)
        for each in (slow, quick):
            each.close()
        await echo.server.stop(0)

    asyncio.run(story())


def test_the_memory_of_buffers_goes_back_to_the_system() -> None:
    pool = BufferPool(64 * 1024, kept_max=2)
    before = resident_bytes()
    taken = []
    for _ in range(500):
        taken.append((pool.take(), bytearray(2000)))
        taken[-1][0][:] = bytes(pool.size)
    assert resident_bytes() - before > 30_000_000
    small = [each for _, each in taken]
    for buffer, _ in taken:
        pool.give_back(buffer)
    del taken, buffer
    assert len(small) == 500
    assert resident_bytes() - before < 8_000_000


def test_a_connection_that_asks_for_room_twice_does_not_take_the_turn_of_the_next() -> None:
    """A response to an earlier request makes a connection look at its large frame again."""
    size = 100_000

    async def story() -> None:
        echo = Echo(NetLimits(receiving_bytes_max=size))
        loop = asyncio.get_running_loop()
        first, second, third = await echo.open(3)
        header = struct.pack(">i", size)
        await loop.sock_sendall(first, header + bytes(10))
        await until(lambda: lent() == 0 and len(echo.server.connections) == 3)
        echo.answers_at_once = False
        await loop.sock_sendall(second, PING + header + bytes(10))
        await until(lambda: len(echo.waiting) == 1 and lent() == 1)
        echo.answers_at_once = True
        echo.waiting[0].answer((PING,))
        assert await loop.sock_recv(second, 100) == PING
        await loop.sock_sendall(third, header + bytes(10))
        await until(lambda: lent() == 2)
        async with asyncio.timeout(20):
            for each in (first, second, third):
                sending = asyncio.ensure_future(loop.sock_sendall(each, bytes(size - 10)))
                assert await loop.sock_recv(each, 4) == header
                await sending
        for each in (first, second, third):
            each.close()
        await echo.server.stop(0)

    asyncio.run(story())


async def connected(address: Address) -> PeerConnection[PeerError]:
    return await connect(
        Host.system(),
        address,
        node_id=1,
        client_id="test",
        timeout_ms=20_000,
        request_timeout_ms=20_000,
        as_error=as_is,
    )


@pytest.mark.parametrize("who", ["client", "broker"])
def test_a_closed_connection_of_a_client_is_gone_without_the_collector(who: str) -> None:
    async def open_and_close(broker: FakeBroker) -> None:
        connection = await connected(broker.address)
        assert lent() == 0
        if who == "client":
            connection.close()
        else:
            broker.hang_up()
            await until(lambda: not connection.is_open)
        await until(lambda: not broker.open)

    async def story() -> None:
        async with FakeBroker() as broker:
            await open_and_close(broker)
            before = peers_alive()
            for _ in range(10):
                await open_and_close(broker)
            await asyncio.sleep(0)
            assert peers_alive() == before

    asyncio.run(story())


def tracebacks_alive() -> list[TracebackType]:
    """Those through code of ours; threads of the standard library may keep some of their own."""
    package = str(Path(headwater.__file__).parent)
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, TracebackType) and each.tb_frame.f_code.co_filename.startswith(package)
    ]


class NewTracebacks:
    """Tracebacks that were not there before; tests that ran earlier may have left some."""

    def __init__(self) -> None:
        self._before = tracebacks_alive()  # the objects themselves: an id could be given again

    def alive(self) -> list[TracebackType]:
        before = {id(each) for each in self._before}
        return [each for each in tracebacks_alive() if id(each) not in before]


def test_a_connection_that_fails_is_gone_without_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(address: Address) -> None:
        with pytest.raises(Disconnected):
            await connected(address)

    async def story() -> None:
        before = peers_alive()
        tracebacks = NewTracebacks()
        async with FakeBroker() as broker:
            address = broker.address
            broker.answers[ApiKey.API_VERSIONS] = hang_up
            for _ in range(10):
                await fail(address)
        for _ in range(10):
            await fail(address)  # nobody listens any more
        place = (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)

        async def places(*_: object, **__: object) -> list[object]:
            return [place, place]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", places)
        for _ in range(10):
            await fail(Address("two-addresses", 1))
        await until(lambda: not tracebacks.alive())  # a task may be about to end
        await asyncio.sleep(0)
        assert peers_alive() == before

    asyncio.run(story())


def test_a_pool_that_cannot_connect_keeps_no_traceback() -> None:
    async def fail(pool: ConnectionPool) -> None:
        with pytest.raises(ClientError):
            await pool.connection(-1)

    async def story() -> None:
        tracebacks = NewTracebacks()
        async with FakeBroker() as broker:
            address = str(broker.address)
        config = ClientConfig.build(address, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1)
        pool = ConnectionPool(config, Host.system(), ClusterMetadata())
        for _ in range(3):
            await fail(pool)
        assert pool.reason(-1) is not None
        await until(lambda: not tracebacks.alive())  # a task may be about to end
        await pool.close()

    asyncio.run(story())


def hang_up(_: object) -> None:
    raise HangUp


def peers_alive() -> int:
    """Connections of clients and what belongs to them; the fake broker has streams of its own."""
    found = alive()
    return found["PeerConnection"] + found["SocketStream"]
