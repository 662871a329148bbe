"""The network between simulated machines: bytes come late, in pieces, or not at all.

A connection is two pipes. What a stream sends waits in its queue until the pipe takes a piece of
it, travels for a while, and is put into the receiver's buffer in pieces of other sizes. Slices of
files are read when they arrive, as `sendfile` may do. Each link, from one machine to another, may
have weather of its own, or be blocked: what travels is sent again and again until it gets through,
as TCP does, and nobody is told. A cut tells both ends, or one of them and the other when it next
sends.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from headwater.io import SYSTEM_SOCKETS, Address, FileSlice, Receiver, SocketOptions, Stream
from headwater.testing.sim.loop import Life, SimLoop

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.io.tls import Tls

_WINDOW_BYTES = 256 * 1024
_RESEND_SECONDS = 0.5


@dataclass(slots=True)
class Weather:
    """The current behaviour of the network, or of one of its links."""

    latency_seconds: float = 0.0005
    jitter_seconds: float = 0.0005
    piece_bytes_max: int = 64 * 1024
    connect_failure_rate: float = 0.0
    cut_rate: float = 0.0  # for each piece that travels
    bytes_per_second: float = 0.0  # 0: no bound

    def clear(self) -> None:
        self.latency_seconds = 0.0005
        self.jitter_seconds = 0.0005
        self.piece_bytes_max = 64 * 1024
        self.connect_failure_rate = 0.0
        self.cut_rate = 0.0
        self.bytes_per_second = 0.0


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Internet:
    """All links of a world."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.weather = Weather()
        self.link_weather: dict[tuple[str, str], Weather] = {}  # where it differs
        self.blocked: set[tuple[str, str]] = set()
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.streams: dict[SimStream, None] = {}
        self.powered: set[str] = set()  # addresses of machines that answer, if only to refuse
        # Hears what is sent by those who connected.
        self.tap: Callable[[SimStream, Sequence[Buffer | FileSlice]], None] | None = None
        self._context = copy_context()  # belongs to no life
        self._port = 40_000

    def later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        self.loop.call_later(seconds, call, *args, context=self._context)

    def weather_of(self, source: str, target: str) -> Weather:
        return self.link_weather.get((source, target), self.weather)

    def delay(self, source: str, target: str) -> float:
        weather = self.weather_of(source, target)
        return weather.latency_seconds + self.random.random() * weather.jitter_seconds

    def free_port(self) -> int:
        self._port += 1
        return self._port

    # Faults

    def block(self, source: str, target: str) -> None:
        self.blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        self.blocked.discard((source, target))

    def heal(self) -> None:
        self.blocked.clear()
        self.weather.clear()
        self.link_weather.clear()

    def cut_all(self) -> int:
        """Resets all current connections; returns their number."""
        return self._cut(list(self.streams))

    def cut_between(self, one: str, other: str) -> int:
        """Resets the connections between two machines; how many these were."""
        ends = {one, other}
        return self._cut([s for s in self.streams if {s.local.host, s.peer.host} == ends])

    def _cut(self, streams: list[SimStream]) -> int:
        for stream in streams:
            self.reset(stream)
        return len(streams)

    def reset(self, stream: SimStream) -> None:
        """This end learns that the connection is gone."""
        if not stream.gone:
            stream.context.run(stream.end, _error(errno.ECONNRESET))

    def life_ended(self, life: Life, ip: str, *, power_cut: bool) -> None:
        """A killed process leaves a kernel that resets its connections; a dead machine is mute."""
        for key in [key for key, listener in self.listeners.items() if listener.life is life]:
            del self.listeners[key]
        for stream in [stream for stream in self.streams if stream.life is life]:
            stream.gone = True
            del self.streams[stream]
            peer = stream.other
            if peer is not None and not power_cut:
                self.later(self.delay(ip, peer.local.host), self.reset, peer)
        if power_cut:
            self.powered.discard(ip)

    # Connecting

    async def connect(
        self, life: Life, ip: str, target: Address, receiver: Callable[[Stream], Receiver]
    ) -> SimStream:
        answer: asyncio.Future[SimStream] = self.loop.create_future()
        local = Address(ip, self.free_port())
        stream = SimStream(self, life, life.context(), local, target)
        self.later(self.delay(ip, target.host), self._arrive, stream, answer)
        try:
            await answer
        except BaseException:
            stream.gone = True
            if stream.other is not None:
                self.later(self.delay(ip, target.host), self.reset, stream.other)
            raise
        self.streams[stream] = None
        stream.start(receiver(stream))
        return stream

    def _arrive(self, stream: SimStream, answer: asyncio.Future[SimStream]) -> None:
        if answer.done() or not stream.life.alive:
            return
        source, target = stream.local.host, stream.peer
        link = (source, target.host) in self.blocked or (target.host, source) in self.blocked
        if link or target.host not in self.powered:
            self.later(_RESEND_SECONDS, self._arrive, stream, answer)
            return
        listener = self.listeners.get((target.host, target.port))
        weather = self.weather_of(source, target.host)
        refused = self.random.random() < weather.connect_failure_rate
        if listener is None or refused:
            self.later(self.delay(target.host, source), _refuse, answer)
            return
        other = SimStream(self, listener.life, listener.context, target, stream.local)
        stream.other, other.other = other, stream
        self.streams[other] = None
        if listener.life.paused:  # the kernel has taken it; the process will later
            self.loop.call_soon(listener.take, other, context=listener.context)
        else:
            other.context.run(listener.take, other)
        self.later(self.delay(target.host, source), _answer, answer, stream)


def _refuse(answer: asyncio.Future[SimStream]) -> None:
    if not answer.done():
        answer.set_exception(_error(errno.ECONNREFUSED))


def _answer(answer: asyncio.Future[SimStream], stream: SimStream) -> None:
    if answer.done():
        return
    if stream.gone:
        answer.set_exception(_error(errno.ECONNRESET))
    else:
        answer.set_result(stream)


class SimStream:
    """One end of a connection."""

    def __init__(
        self, net: Internet, life: Life, context: Context, local: Address, peer: Address
    ) -> None:
        self._net = net
        self.life = life
        self.context = context
        self.local = local
        self.peer = peer
        self.other: SimStream | None = None
        self.gone = False
        self._receiver: Receiver | None = None
        self._reading = False
        self._closing = False
        self._queue: deque[memoryview | FileSlice] = deque()
        self._queued = 0
        self._pumping = False
        self._travelling: deque[bytes | FileSlice] = deque()
        self._travelling_bytes = 0
        self._arrives_at = 0.0
        self._inbox = bytearray()
        self._ended = False  # the peer sends no more
        self._told_end = False
        self._reading_soon = False

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.resume()

    # Reading

    def pause(self) -> None:
        self._reading = False

    def resume(self) -> None:
        if not self._reading and not self.gone:
            self._reading = True
            self._read_soon()

    def _read_soon(self) -> None:
        if not self._reading_soon and self._reading and (self._inbox or self._ended):
            self._reading_soon = True
            self._net.loop.call_soon(self._read, context=self.context)

    def _read(self) -> None:
        self._reading_soon = False
        if not self._reading or self.gone:
            return
        receiver = self._receiver
        assert receiver is not None
        if self._inbox:
            room = receiver.buffer()
            weather = self._net.weather_of(self.peer.host, self.local.host)
            count = min(len(room), len(self._inbox), weather.piece_bytes_max)
            if count > 1 and self._net.random.random() < 0.2:
                count = self._net.random.randint(1, count)
            room[:count] = self._inbox[:count]
            del self._inbox[:count]
            receiver.received(count)
            if self.other is not None:
                self.other.pump_soon()
            self._read_soon()
        elif self._ended and not self._told_end:
            self._told_end = True
            self._reading = False
            receiver.ended()

    def turn(self, seconds: float) -> bool:
        """Reads what has arrived; nothing arrives while the loop is held."""
        if not self._reading or not (self._inbox or self._ended):
            return False
        self._read()
        return True

    def arrived(self, data: bytes) -> None:
        self._inbox += data
        self._read_soon()

    def arrived_end(self) -> None:
        self._ended = True
        self._read_soon()

    # Writing

    def send(self, parts: Sequence[Buffer | FileSlice]) -> None:
        if self.gone:
            return
        if self._net.tap is not None:
            self._net.tap(self, parts)
        for part in parts:
            item = part if isinstance(part, FileSlice) else memoryview(part).cast("B")
            if len(item):
                self._queue.append(item)
                self._queued += len(item)
        if not self._pumping and self._net.random.random() < 0.5:
            self._pump_some(_WINDOW_BYTES)
        self.pump_soon()

    def expect(self) -> None: ...

    def put_first(self) -> None: ...

    def queued_bytes(self) -> int:
        return self._queued

    def pump_soon(self) -> None:
        if self._queue and not self._pumping and not self.gone:
            self._pumping = True
            self._net.loop.call_later(
                self._net.random.random() * 0.0002, self._pump, context=self.context
            )

    def _pump(self) -> None:
        """The kernel takes some of the queue."""
        self._pumping = False
        if self.gone:
            return
        weather = self._net.weather_of(self.local.host, self.peer.host)
        self._pump_some(self._net.random.randint(1, weather.piece_bytes_max))
        if self._queue:
            if self._room() > 0:
                self.pump_soon()
            return
        receiver = self._receiver
        assert receiver is not None
        receiver.drained()
        if self._closing and not self._queue:
            self.end(None)

    def _room(self) -> int:
        waiting = len(self.other._inbox) if self.other is not None else 0
        return _WINDOW_BYTES - self._travelling_bytes - waiting

    def _pump_some(self, budget: int) -> None:
        budget = min(budget, self._room())
        while self._queue and budget > 0:
            head = self._queue[0]
            count = min(budget, len(head))
            piece: bytes | FileSlice
            if isinstance(head, FileSlice):
                piece = FileSlice(head.file, head.position, count)
                head.position += count
                head.count -= count
                if not head.count:
                    self._queue.popleft()
            else:
                piece = bytes(head[:count])
                if count == len(head):
                    self._queue.popleft()
                else:
                    self._queue[0] = head[count:]
            self._queued -= count
            budget -= count
            self._travelling.append(piece)
            self._travelling_bytes += count
            self._travel(count)

    def _travel(self, count: int) -> None:
        net, now = self._net, self._net.loop.time()
        source, target = self.local.host, self.peer.host
        self._arrives_at = max(self._arrives_at, now + net.delay(source, target))
        bytes_per_second = net.weather_of(source, target).bytes_per_second
        if bytes_per_second:
            self._arrives_at += count / bytes_per_second
        net.later(self._arrives_at - now, self._arrive)

    def _arrive(self) -> None:
        """The first of what travels has come to the other end, unless the link is blocked."""
        net = self._net
        other = self.other
        if not self._travelling:
            return
        if (self.local.host, self.peer.host) in net.blocked:
            if self.life.alive:
                net.later(_RESEND_SECONDS, self._arrive)
            return
        piece = self._travelling.popleft()
        self._travelling_bytes -= len(piece)
        if other is None or other.gone:
            # Nobody there. A machine that is up says so; one that is down stays silent.
            if self.peer.host in net.powered:
                net.later(net.delay(self.peer.host, self.local.host), net.reset, self)
            return
        if piece == b"":
            other.arrived_end()
            return
        try:
            data = piece.read() if isinstance(piece, FileSlice) else piece
        except OSError:
            data = b""
        weather = net.weather_of(self.local.host, self.peer.host)
        if len(data) < len(piece) or net.random.random() < weather.cut_rate:
            # The file ended before what was promised, or the weather is bad.
            self._travelling.clear()
            self._travelling_bytes = 0
            net.reset(self)
            net.later(net.delay(self.local.host, self.peer.host), net.reset, other)
            return
        other.arrived(data)
        if self._queue:
            self.pump_soon()

    # Ending

    def close(self) -> None:
        if not self._queue:
            self.end(None)
        else:
            self._closing = True
            self.pause()

    def abort(self) -> None:
        self.end(None)

    def end(self, error: OSError | None) -> None:
        if self.gone:
            return
        self.gone = True
        self._reading = False
        self._queue.clear()
        self._queued = 0
        self._net.streams.pop(self, None)
        if error is None:
            self._travelling.append(b"")
            self._travel(0)
        receiver = self._receiver
        if receiver is not None:
            self._net.loop.call_soon(receiver.closed, error, context=self.context)


class SimListener:
    __slots__ = ("_accept", "_accepts_at", "_net", "address", "context", "life")

    def __init__(
        self, net: Internet, life: Life, address: Address, accept: Callable[[Stream], Receiver]
    ) -> None:
        self._net = net
        self._accept = accept
        self._accepts_at = 0.0
        self.life = life
        self.context = life.context()
        self.address = address

    def start(self) -> None:
        self._net.listeners[self.address] = self

    def pause(self, seconds: float) -> None:
        self._accepts_at = self._net.loop.time() + seconds

    def take(self, stream: SimStream) -> None:
        wait = self._accepts_at - self._net.loop.time()
        if wait > 0:
            self._net.loop.call_later(wait, self.take, stream, context=self.context)
            return
        if not stream.gone:
            stream.start(self._accept(stream))

    def close(self) -> None:
        self._net.listeners.pop(self.address, None)


class SimNetwork:
    """The network as one machine sees it."""

    __slots__ = ("_ip", "_life", "_net")

    def __init__(self, net: Internet, life: Life, ip: str) -> None:
        self._net = net
        self._life = life
        self._ip = ip

    def host_name(self) -> str:
        return self._ip

    def bind(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        options: SocketOptions = SYSTEM_SOCKETS,
    ) -> SimListener:
        address = Address(self._ip, port or self._net.free_port())
        if address in self._net.listeners:
            raise _error(errno.EADDRINUSE)
        return SimListener(self._net, self._life, address, accept)

    async def connect(
        self, host: str, port: int, receiver: Callable[[Stream], Receiver], tls: Tls | None = None
    ) -> SimStream:
        assert tls is None, "nobody listens in on the simulated network"
        if host in ("", "localhost", "127.0.0.1", "::1"):
            host = self._ip
        return await self._net.connect(self._life, self._ip, Address(host, port), receiver)
