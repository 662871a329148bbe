"""Sockets are made as they are asked for."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.io import FileSlice, Receiver, SocketOptions, Stream
from headwater.io.disk import SystemDisk
from headwater.io.sockets import SocketNetwork

SIZE = 50_000
_DATA_SEGMENTS_OUT = 156  # the position of tcpi_data_segs_out in Linux's struct tcp_info


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
        listener = network.bind("127.0.0.1", 0, accept, options)
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


def test_a_failed_answer_does_not_keep_its_file(tmp_path: Path) -> None:
    """The log of a deleted topic is closed when the last slice of it is gone. A slice that was on
    its way to a peer that has hung up must not stay."""

    async def story() -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return Deaf()

        network = SocketNetwork()
        listener = network.bind("127.0.0.1", 0, accept)
        listener.start()
        with socket.create_connection(listener.address) as peer:
            stream = await accepted
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.pause()  # the reset shows when it sends
        file = SystemDisk().open(str(tmp_path / "log"), create=True)
        file.append(bytes(100_000))
        stream.send((b"header", FileSlice(file, 0, 100_000)))
        await asyncio.sleep(0)
        descriptor = file.fileno()
        del file
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        listener.close()

    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()


def test_a_response_with_several_slices_leaves_in_one_segment(tmp_path: Path) -> None:
    """The peer would be woken for each of them and find an incomplete frame."""

    async def story() -> int:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return Deaf()

        network = SocketNetwork()
        listener = network.bind("127.0.0.1", 0, accept)
        listener.start()
        with socket.create_connection(listener.address) as peer:
            stream = await accepted
            file = SystemDisk().open(str(tmp_path / "log"), create=True)
            file.append(bytes(10_000))
            slices = FileSlice(file, 0, 5000), FileSlice(file, 5000, 5000)
            stream.send((b"header", slices[0], b"header", slices[1]))
            received = 0
            while received < 10_012:
                received += len(peer.recv(65_536))
            sock = stream._socket  # type: ignore[attr-defined]  # the kernel's own word for it
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
            stream.abort()
        listener.close()
        return int.from_bytes(info[_DATA_SEGMENTS_OUT:], sys.byteorder)

    assert asyncio.run(story()) == 1


class Told(Deaf):
    """Says why its stream has ended."""

    def __init__(self) -> None:
        self.end: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()

    def closed(self, error: OSError | None) -> None:
        self.end.set_result(error)


def test_parts_in_memory_arrive_in_order_though_the_kernel_takes_them_piece_by_piece() -> None:
    parts = [bytes([number]) * (300_000 * number) for number in range(6)]
    whole = b"".join(parts)

    async def received() -> bytes:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[Stream] = loop.create_future()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return Deaf()

        network = SocketNetwork()
        listener = network.bind("127.0.0.1", 0, accept, SocketOptions(send_buffer_bytes=20_000))
        listener.start()
        near = socket.create_connection(listener.address)
        near.setblocking(False)
        far = await accepted
        far.send(parts)
        far.send((b"behind",))
        assert far.queued_bytes() > 0
        found = b""
        while len(found) < len(whole) + 6:
            found += await loop.sock_recv(near, 65536)
        assert far.queued_bytes() == 0
        near.close()
        far.abort()
        listener.close()
        return found

    assert asyncio.run(received()) == whole + b"behind"


def test_a_response_whose_file_was_cut_ends_the_connection(tmp_path: Path) -> None:
    """Its length was announced: whatever came next would be taken for a part of it."""

    async def story() -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        told = Told()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return told

        listener = SocketNetwork().bind("127.0.0.1", 0, accept)
        listener.start()
        with socket.create_connection(listener.address) as peer:
            stream = await accepted
            file = SystemDisk().open(str(tmp_path / "log"), create=True)
            file.append(bytes(1000))
            found = FileSlice(file, 0, 1000)
            os.truncate(tmp_path / "log", 400)
            stream.send((b"header", found))
            error = await told.end
            assert error is not None
            assert "ends before byte 400" in str(error)
            peer.setblocking(False)
            received = b""
            while chunk := await asyncio.get_running_loop().sock_recv(peer, 10_000):
                received += chunk
            assert received == b"header" + bytes(400)
        file.close()
        listener.close()

    asyncio.run(story())


def test_none_of_several_slices_is_sent_if_the_file_of_one_was_cut(tmp_path: Path) -> None:
    async def story() -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        told = Told()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return told

        listener = SocketNetwork().bind("127.0.0.1", 0, accept)
        listener.start()
        with socket.create_connection(listener.address) as peer:
            stream = await accepted
            file = SystemDisk().open(str(tmp_path / "log"), create=True)
            file.append(bytes(1000))
            slices = FileSlice(file, 0, 300), FileSlice(file, 300, 700)
            os.truncate(tmp_path / "log", 400)
            stream.send((b"header", slices[0], b"header", slices[1]))
            error = await told.end
            assert error is not None
            assert "ends before byte 400" in str(error)
            peer.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(peer, 10_000) == b""
        descriptor = file.fileno()
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):  # no slice holds it
            os.fstat(descriptor)
        listener.close()

    asyncio.run(story())


def test_a_listener_out_of_descriptors_waits_and_accepts_again() -> None:
    async def story() -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return Deaf()

        listener = SocketNetwork().bind("127.0.0.1", 0, accept)
        own: Any = listener
        real, refused = own._socket, asyncio.Event()

        class Short:
            """The listening socket of a process that has no descriptor left for another one."""

            fileno = real.fileno
            listen = real.listen

            def accept(self) -> None:
                own._socket = real  # and then it has
                refused.set()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        own._socket = Short()
        listener.start()
        with socket.create_connection(listener.address):
            await refused.wait()
            assert not accepted.done()
            (await accepted).abort()
        listener.close()

    asyncio.run(story())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no listener for both families here")
def test_an_ipv4_client_of_a_listener_for_both_families_has_its_ipv4_address() -> None:
    async def story() -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()

        def accept(stream: Stream) -> Receiver:
            accepted.set_result(stream)
            return Deaf()

        listener = SocketNetwork().bind("::", 0, accept)
        listener.start()
        with socket.create_connection(("127.0.0.1", listener.address.port)):
            stream = await accepted
            assert stream.peer.host == stream.local.host == "127.0.0.1"
            stream.abort()
        listener.close()

    asyncio.run(story())
