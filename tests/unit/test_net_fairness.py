"""Memory for large requests: peers that are slow, or many, leave some to the others."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headwater.io import Address, Host
from headwater.io.memory import MemoryDisk
from headwater.net.connection import Answer, Connection
from headwater.net.limits import NetLimits
from headwater.net.server import Server
from tests.support.pipes import Pipe

MIB = 1024 * 1024
HEADER = struct.Struct(">i")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)


class Peer:
    """One connection of a server whose other end is the test."""

    def __init__(self, server: Server, host: str) -> None:
        pipe: Any = Pipe()
        self.pipe = pipe
        self.pipe.peer = Address(host, 50000)
        self.served: list[int] = []
        self.connection: Any = server._accept(pipe, "PLAINTEXT", self.serve)
        self.server = server

    def serve(self, connection: Connection, frame: memoryview) -> Answer:
        self.served.append(len(frame))
        return ()

    def announce(self, size: int) -> None:
        self.arrive(HEADER.pack(size))

    def arrive(self, data: bytes) -> None:
        while data and not self.pipe.paused and not self.pipe.ended:
            space = self.connection.buffer()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)

    def has_memory(self) -> bool:
        return self.connection._large is not None

    def is_closed(self) -> bool:
        if self.pipe.ended and not self.connection.gone:
            self.connection.closed(None)
        return bool(self.pipe.ended)


class Scene:
    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.refusals: list[str] = []
        host = Host(self.clock, Random(1), MemoryDisk(), None, None)  # type: ignore[arg-type]
        self.server = Server(host, NetLimits(**limits), self.refusals.append)

    def peer(self, host: str) -> Peer:
        return Peer(self.server, host)

    async def passes(self, seconds: float, *peers: Peer, each: Callable[[Peer], None]) -> None:
        """Lets time pass, a second at a time; the peers do something in each."""
        for _ in range(round(seconds)):
            self.clock.now += 1.0
            for peer in peers:
                if not peer.is_closed():
                    each(peer)
            self.server._close_idle()
            for peer in peers:
                peer.is_closed()
            await asyncio.sleep(0)


def trickle(peer: Peer) -> None:
    peer.arrive(b"x")


def story(told: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(told())

    run.__name__ = told.__name__
    return run


@story
async def test_slow_peers_of_one_host_leave_memory_to_another() -> None:
    scene = Scene()
    slow = [scene.peer("10.0.0.1") for _ in range(6)]
    for peer in slow:
        peer.announce(100 * MIB)
    assert [peer.has_memory() for peer in slow] == [True] * 3 + [False] * 3
    other = scene.peer("10.0.0.2")
    other.announce(MIB)
    other.arrive(bytes(MIB))
    assert other.served == [MIB]


@story
async def test_peers_that_trickle_lose_the_memory_that_others_wait_for() -> None:
    scene = Scene()
    slow = [scene.peer(f"10.0.0.{number}") for number in range(5)]
    for peer in slow:
        peer.announce(100 * MIB)
    other = scene.peer("10.0.1.1")
    other.announce(100 * MIB)
    assert not other.has_memory()
    await scene.passes(125, *slow, each=trickle)
    assert not other.has_memory()
    assert not other.is_closed()  # it cannot send: it waits for the others
    await scene.passes(10, *slow, each=trickle)
    assert other.has_memory()
    assert all(peer.is_closed() for peer in slow)
    assert "incomplete frame of 104857600 bytes after 131 s" in scene.refusals[0]
    other.arrive(bytes(100 * MIB))
    assert other.served == [100 * MIB]


@pytest.mark.parametrize("size", [20, 60_000, 100_000, 10 * MIB])
def test_a_frame_has_to_come_within_a_time_that_each_byte_does_not_extend(size: int) -> None:
    async def told() -> None:
        scene = Scene()
        peer = scene.peer("10.0.0.1")
        peer.announce(size)
        allowed = 30 + size // (128 * 1024)
        await scene.passes(
            allowed - 1,
            peer,
            each=lambda peer: peer.arrive(b"x" if scene.clock.now % 4 < 1 else b""),
        )
        assert not peer.is_closed()
        assert peer.served == []
        await scene.passes(
            4, peer, each=lambda peer: peer.arrive(b"x" if scene.clock.now % 4 < 1 else b"")
        )
        assert peer.is_closed()

    asyncio.run(told())


@story
async def test_one_frame_after_the_other_may_take_any_time() -> None:
    scene = Scene()
    peer = scene.peer("10.0.0.1")
    stream = HEADER.pack(5) + b"12345"
    sent = 0

    def send_one(peer: Peer) -> None:
        nonlocal sent
        peer.arrive(stream[sent % 9 : sent % 9 + 1])
        sent += 1

    await scene.passes(300, peer, each=send_one)
    assert not peer.is_closed()
    assert len(peer.served) == 300 // 9


@story
async def test_memory_goes_to_those_who_wait_in_their_order() -> None:
    scene = Scene(receiving_bytes_max=4 * MIB)
    first = scene.peer("10.0.0.1")
    first.announce(3 * MIB)
    second, third = scene.peer("10.0.0.2"), scene.peer("10.0.0.3")
    second.announce(2 * MIB)
    third.announce(MIB)  # there would be room, but a large one must not wait for ever
    assert (second.has_memory(), third.has_memory()) == (False, False)
    first.arrive(bytes(3 * MIB))
    for _ in range(3):
        await asyncio.sleep(0)
    assert (second.has_memory(), third.has_memory()) == (True, True)
