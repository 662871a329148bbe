"""A stream in secret: whole in both directions, honest about who is there, and ended cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from headwater.io import FileSlice, Host, Stream
from headwater.io.disk import SystemDisk
from headwater.io.sockets import SocketNetwork
from headwater.io.tls import Tls, TlsStream, Trust, client_context, is_pem, read_file
from headwater.net import Answer, Connection, NetLimits, PendingResponse, Server

AUTHORITY = trustme.CA()
OTHER_AUTHORITY = trustme.CA()
SERVER = AUTHORITY.issue_cert("localhost", "127.0.0.1")
CLIENT = AUTHORITY.issue_cert("client@example.org")


def server_context(*, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    SERVER.configure_cert(context)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        AUTHORITY.configure_trust(context)
    return context


def trusting(authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


class Sink:
    """Keeps what comes."""

    def __init__(self, stream: Stream, buffer_bytes: int = 5000) -> None:
        self.stream = stream
        self.got = bytearray()
        self.is_ended = False
        self.error: OSError | None = None
        self.changed = asyncio.Event()
        self.is_closed = asyncio.Event()
        self.drains = 0
        self._buffer = memoryview(bytearray(buffer_bytes))

    def buffer(self) -> memoryview:
        return self._buffer

    def received(self, count: int) -> None:
        self.got += self._buffer[:count]
        self.changed.set()

    def drained(self) -> None:
        self.drains += 1

    def ended(self) -> None:
        self.is_ended = True
        self.changed.set()
        self.stream.abort()

    def closed(self, error: OSError | None) -> None:
        self.error = error
        self.is_closed.set()
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(peer: Peer, context: ssl.SSLContext | None = None):  # type: ignore[no-untyped-def]
    """A server of Python's own on the other side."""
    quiet = contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError)

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with quiet:
            await peer(reader, writer)
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()  # without waiting for clients that a test leaves open, as Python 3.12 does


async def connected(port: int, tls: Tls | None) -> Sink:
    sinks: list[Sink] = []

    def receiver(stream: Stream) -> Sink:
        sinks.append(Sink(stream))
        return sinks[0]

    await SocketNetwork().connect("127.0.0.1", port, receiver, tls)
    return sinks[0]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(70_000):
        writer.write(data)
        await writer.drain()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_what_is_sent_arrives_whole_and_comes_back(version: ssl.TLSVersion, tmp_path: Path) -> None:
    async def run() -> None:
        context = trusting()
        context.minimum_version = context.maximum_version = version
        file = SystemDisk().open(str(tmp_path / "file"), create=True)
        content = bytes(range(256)) * 12_000
        file.append(content)
        async with serving(echo, server_context()) as port:
            sink = await connected(port, Tls(context, "localhost"))
            sink.stream.send((b"head", b"", bytearray(b"er"), FileSlice(file, 7, len(content) - 7)))
            sink.stream.send((b"tail" * 100_000,))
            expected = b"header" + content[7:] + b"tail" * 100_000
            await sink.until(lambda: len(sink.got) >= len(expected))
            assert hashlib.sha256(sink.got).digest() == hashlib.sha256(expected).digest()
            assert sink.stream.queued_bytes() == 0
            sink.stream.close()
            await sink.is_closed.wait()
            assert sink.error is None
        file.close()

    asyncio.run(run())


class Listening:
    """A server of our own on the other side."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.served: list[Sink] = []
        self._context = context
        self._listener = SocketNetwork().bind("127.0.0.1", 0, self._accept)
        self._listener.start()
        self.port = self._listener.address.port

    def _accept(self, stream: Stream) -> TlsStream:
        secret = TlsStream(stream, Tls(self._context, is_server=True))
        self.served.append(Sink(secret))
        asyncio.get_running_loop().call_soon(secret.start, self.served[-1])
        return secret

    def close(self) -> None:
        self._listener.close()


def test_a_file_that_was_cut_ends_the_connection(tmp_path: Path) -> None:
    """The length that was announced cannot be delivered."""

    async def run() -> None:
        listener = Listening(server_context())
        sink = await connected(listener.port, Tls(trusting(), "localhost"))
        file = SystemDisk().open(str(tmp_path / "file"), create=True)
        file.append(bytes(200_000))
        part = FileSlice(file, 0, 200_000)
        (served,) = listener.served
        (tmp_path / "file").write_bytes(bytes(1000))
        served.stream.send((b"head", part))
        await served.is_closed.wait()
        assert served.error is not None
        assert "ends before" in str(served.error)
        await sink.is_closed.wait()
        assert b"head" not in sink.got[4:]
        assert len(sink.got) < 1000
        listener.close()

    asyncio.run(run())


def test_requests_behind_one_that_waits_are_served_when_it_is_answered() -> None:
    """More than the receive buffer has room for: the stream is paused in the middle of it."""
    requests, pending, first = 400, PendingResponse(), asyncio.Event()
    served: list[int] = []

    def dispatch(connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        served.append(len(frame))
        first.set()
        return pending if len(served) == 1 else (len(served).to_bytes(4),)

    async def run() -> None:
        server = Server(Host.system(), NetLimits(), lambda line: None)
        gate: Any = SimpleNamespace(
            context=server_context(),
            opened=lambda connection: None,
            secured=lambda connection, certificate: connection.proven(),
        )
        at = server.bind("x", "127.0.0.1", 0, dispatch, gate)
        server.open()
        sink = await connected(at.address.port, Tls(trusting(), "localhost"))
        request = (1000).to_bytes(4) + bytes(1000)
        sink.stream.send((request,))
        await first.wait()
        (connection,) = server.connections
        pause, paused = connection.stream.pause, asyncio.Event()

        def pausing() -> None:
            pause()
            paused.set()

        connection.stream.pause = pausing  # type: ignore[method-assign]
        sink.stream.send((request,) * (requests - 1))
        await paused.wait()
        pending.answer((b"1st.",))
        await sink.until(lambda: len(sink.got) >= 4 * requests)
        expected = [b"1st.", *((at + 2).to_bytes(4) for at in range(requests - 1))]
        assert bytes(sink.got) == b"".join(expected)
        sink.stream.close()
        await server.stop(0.0)

    asyncio.run(run())


def test_both_sides_may_be_ours() -> None:
    async def run() -> None:
        listener = Listening(server_context())
        sink = await connected(listener.port, Tls(trusting(), "127.0.0.1"))
        served = listener.served
        sink.stream.send((b"question",))
        await served[0].until(lambda: served[0].got == b"question")
        served[0].stream.send((b"answer" * 5_000_000,))
        await sink.until(lambda: len(sink.got) == 30_000_000)
        assert served[0].drains == 1
        served[0].stream.close()
        await sink.until(lambda: sink.is_ended)
        listener.close()

    asyncio.run(run())


def test_a_pause_holds_back_what_is_deciphered_already() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 100_000)
        await writer.drain()
        await reader.read()

    async def run() -> None:
        async with serving(talk, server_context()) as port:
            sink = await connected(port, Tls(trusting(), "localhost"))
            received = sink.received

            def pausing(count: int) -> None:
                received(count)
                if count:  # otherwise all is deciphered, and the rest has to come from the socket
                    sink.stream.pause()

            sink.received = pausing  # type: ignore[method-assign]
            await sink.until(lambda: bool(sink.got))
            held = len(sink.got)
            await asyncio.sleep(0.05)
            assert len(sink.got) == held <= 5000
            while len(sink.got) < 100_000:
                sink.stream.resume()
                await asyncio.sleep(0)
            assert sink.got == b"x" * 100_000

    asyncio.run(run())


async def _refused(context: ssl.SSLContext, name: str, server: ssl.SSLContext | None) -> OSError:
    async with serving(echo, server) as port:
        with pytest.raises(OSError) as caught:  # noqa: PT011  # which one is asked by the tests
            async with asyncio.timeout(10):
                await connected(port, Tls(context, name))
    return caught.value


def test_a_stranger_is_not_trusted() -> None:
    error = asyncio.run(_refused(trusting(OTHER_AUTHORITY), "localhost", server_context()))
    assert isinstance(error, ssl.SSLCertVerificationError)


def test_somebody_elses_certificate_is_not_trusted() -> None:
    error = asyncio.run(_refused(trusting(), "elsewhere.example", server_context()))
    assert isinstance(error, ssl.SSLCertVerificationError)
    assert "elsewhere.example" in error.verify_message


def test_a_peer_without_tls_is_found_out() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def run(peer: Peer) -> OSError:
        async with serving(peer) as port:
            with pytest.raises(OSError) as caught:  # noqa: PT011
                await connected(port, Tls(trusting(), "localhost"))
        return caught.value

    assert isinstance(asyncio.run(run(plain)), ssl.SSLError)
    assert isinstance(asyncio.run(run(hang_up)), ConnectionResetError)


def test_a_client_without_the_certificate_that_is_wanted_hears_of_it() -> None:
    async def run() -> None:
        listener = Listening(server_context(wants_client=True))
        unknown = await connected(listener.port, Tls(trusting(), "localhost"))
        await unknown.is_closed.wait()
        assert isinstance(unknown.error, ssl.SSLError)
        context = trusting()
        CLIENT.configure_cert(context)
        known = await connected(listener.port, Tls(context, "localhost"))
        known.stream.send((b"hello",))
        served = listener.served[1]
        await served.until(lambda: served.got == b"hello")
        assert known.error is None
        listener.close()

    asyncio.run(run())


def test_a_connection_that_breaks_off_ends_as_any_other() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.transport.abort()

    async def run() -> None:
        async with serving(cut, server_context()) as port:
            sink = await connected(port, Tls(trusting(), "localhost"))
            sink.stream.send((b"hello",))
            await sink.until(lambda: sink.is_ended or sink.is_closed.is_set())
            sink.stream.send((b"into the void",))
            sink.stream.close()

    asyncio.run(run())


def test_one_who_gives_up_in_the_handshake_leaves_nothing_behind() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def run() -> None:
        async with serving(mute) as port:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await connected(port, Tls(trusting(), "localhost"))

    asyncio.run(run())


def test_certificates_come_from_files_or_text(tmp_path: Path) -> None:
    authority, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    AUTHORITY.cert_pem.write_to_path(authority)
    CLIENT.private_key_and_cert_chain_pem.write_to_path(own)
    chain = "".join(pem.bytes().decode() for pem in CLIENT.cert_chain_pems)
    texts = Trust(
        ca_pem=AUTHORITY.cert_pem.bytes().decode(),
        chain_pem=chain,
        key_pem=CLIENT.private_key_pem.bytes().decode(),
    )
    files = Trust(ca_path=str(authority), chain_path=str(own))

    async def run(trust: Trust) -> bytes:
        async with serving(echo, server_context(wants_client=True)) as port:
            sink = await connected(port, Tls(client_context(trust), "localhost"))
            sink.stream.send((b"hello",))
            await sink.until(lambda: sink.is_closed.is_set() or bool(sink.got))
            return bytes(sink.got)

    assert asyncio.run(run(texts)) == b"hello"
    assert asyncio.run(run(files)) == b"hello"
    assert is_pem(str(own))
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00")
    assert not is_pem(str(tmp_path / "store.jks"))
    with pytest.raises(FileNotFoundError):
        is_pem(str(tmp_path / "nowhere"))
    assert "PRIVATE KEY" not in repr(texts)


def test_only_regular_files_of_some_size_are_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(8 * 1024 * 1024 + 1)
    for path, said in ((pipe, "not a regular file"), (tmp_path, "directory"), (large, "more than")):
        with pytest.raises(OSError, match=said):
            read_file(str(path))


def test_a_secured_connection_is_gone_without_the_collector() -> None:
    """Returns whether it was closed or its handshake failed."""

    async def use(port: int) -> None:
        sink = await connected(port, Tls(trusting(), "localhost"))
        sink.stream.send((b"hello",))
        await sink.until(lambda: sink.got == b"hello")
        sink.stream.close()
        await sink.is_closed.wait()

    async def fail(port: int) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connected(port, Tls(trusting(OTHER_AUTHORITY), "localhost"))

    async def run() -> None:
        async with serving(echo, server_context()) as port:
            for _ in range(5):
                await use(port)
                await fail(port)
            await asyncio.sleep(0)
            assert not [each for each in gc.get_objects() if isinstance(each, TlsStream)]

    gc.collect()
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
