"""A TCP proxy that treats connections badly: it cuts, delays and stalls them, on one seed.

    proxy = UnrulyProxy("127.0.0.1:9092", seed=7)
    await proxy.start()
    ... clients use proxy.address ...

Bytes are never changed and never reordered: a network may lose a connection, not lie about it. A
cut is a reset in the middle of whatever is under way, so a request may or may not have arrived. A
stall keeps the connection open and passes nothing on; a delay makes every chunk late.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from random import Random

_CHUNK_BYTES = 16 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() a reset


@dataclass(frozen=True, slots=True)
class Manners:
    """The degree of trouble. Rates are for each connection and second."""

    cuts: float = 0.1
    stalls: float = 0.05
    stall_seconds_max: float = 3.0
    delay_seconds_max: float = 0.02
    refusals: float = 0.1  # the part of new connections that are cut at once


class UnrulyProxy:
    def __init__(self, target: str, *, seed: int, manners: Manners | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._random = Random(seed)
        self._manners = manners or Manners()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_kind = False  # while it is, it does nothing but pass bytes on
        self.done: Counter[str] = Counter()  # what it did, for the report

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._accepted, host, port)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._keep(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._serve(reader, writer)
        finally:
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.done["connections"] += 1
        if not self.is_kind and self._random.random() < self._manners.refusals:
            self.done["refused"] += 1
            return
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        stalled = asyncio.Event()
        stalled.set()
        work = [
            asyncio.ensure_future(self._pass_on(reader, there_writer, stalled)),
            asyncio.ensure_future(self._pass_on(there_reader, writer, stalled)),
            asyncio.ensure_future(self._misbehave(stalled)),
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            _reset(there_writer)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await flows.wait()
            if not self.is_kind and self._random.random() < 0.2:
                await asyncio.sleep(self._random.random() * self._manners.delay_seconds_max)
            # In two pieces now and then, for frames that arrive in pieces.
            middle = self._random.randrange(len(chunk)) if self._random.random() < 0.1 else 0
            writer.write(chunk[:middle])
            writer.write(chunk[middle:])
            await writer.drain()

    async def _misbehave(self, flows: asyncio.Event) -> None:
        """Ends when the connection is to be cut."""
        manners = self._manners
        while True:
            both = manners.cuts + manners.stalls
            await asyncio.sleep(self._random.expovariate(both))
            if self.is_kind:
                continue
            if self._random.random() < manners.cuts / both:
                self.done["cut"] += 1
                return
            self.done["stalled"] += 1
            flows.clear()
            await asyncio.sleep(self._random.random() * manners.stall_seconds_max)
            flows.set()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.close()
