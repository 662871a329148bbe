"""Sockets are made as they are asked for."""

from __future__ import annotations

import asyncio
import socket

from headwater.io import Receiver, SocketOptions, Stream
from headwater.io.sockets import SocketNetwork

SIZE = 50_000


class Deaf:
    """Takes what comes and does nothing with it."""

    def buffer(self) -> memoryview:
        return memoryview(bytearray(10))

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def ended(self) -> None: ...

    def closed(self, error: OSError | None) -> None: ...


def buffer_sizes(options: SocketOptions) -> tuple[int, int]:
    """Of a connection that was accepted: of what it sends, and of what it receives."""

    async def sizes() -> tuple[int, int]:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return Deaf()

        network = SocketNetwork()
        listener = network.listen("127.0.0.1", 0, accept, options)
        listener.start()
        near = await network.connect(*listener.address, lambda _: Deaf())
        far = await accepted
        sock = far._socket  # type: ignore[attr-defined]  # the kernel's own word for it
        found = tuple(
            sock.getsockopt(socket.SOL_SOCKET, name)
            for name in (socket.SO_SNDBUF, socket.SO_RCVBUF)
        )
        for stream in (near, far):
            stream.abort()
        listener.close()
        return found[0], found[1]

    return asyncio.run(sizes())


def test_buffers_have_the_size_that_was_asked_for() -> None:
    given = SocketOptions(send_buffer_bytes=SIZE, receive_buffer_bytes=SIZE)
    # Linux keeps as much again for its own use, and says the sum.
    assert buffer_sizes(given) == (2 * SIZE, 2 * SIZE)


def test_without_a_size_the_system_has_its_way() -> None:
    assert 2 * SIZE not in buffer_sizes(SocketOptions())
