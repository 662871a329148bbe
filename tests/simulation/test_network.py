"""Bytes that come late, in pieces, or not at all."""

from __future__ import annotations

import asyncio

import pytest

from headwater.io import FileSlice, Host, Stream
from headwater.testing.sim.network import Weather
from headwater.testing.sim.world import World


class Peer:
    """Collects what arrives."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.pieces = 0
        self.stream: Stream | None = None
        self.was_ended = False
        self.was_closed: list[OSError | None] = []
        self._buffer = bytearray(1000)

    def accept(self, stream: Stream) -> Peer:
        self.stream = stream
        return self

    def buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        self.got += self._buffer[:count]
        self.pieces += 1

    def drained(self) -> None: ...

    def ended(self) -> None:
        self.was_ended = True
        assert self.stream is not None
        self.stream.close()

    def closed(self, error: OSError | None) -> None:
        self.was_closed.append(error)


async def _pair(world: World) -> tuple[Peer, Peer, Host]:
    server, client = world.machine("server"), world.machine("client")
    there, here = Peer(), Peer()
    host = server.boot()
    host.network.bind("0.0.0.0", 80, there.accept).start()
    await client.boot().network.connect(server.ip, 80, here.accept)
    return there, here, host


def test_bytes_arrive_whole_and_in_order_but_in_pieces() -> None:
    world = World(5)
    data = bytes(range(256)) * 1000

    async def main() -> None:
        there, here, _ = await _pair(world)
        world.net.weather.piece_bytes_max = 5_000
        assert here.stream is not None
        here.stream.send([data[:100], data[100:]])
        here.stream.close()
        await asyncio.sleep(60)
        assert bytes(there.got) == data
        assert there.pieces > 50
        assert there.was_ended
        assert there.was_closed == [None]
        assert here.was_closed == [None]

    world.run(main())


def test_a_slice_of_a_file_is_read_when_it_arrives() -> None:
    world = World(5)

    async def main() -> None:
        there, here, host = await _pair(world)
        file = host.disk.open("/f", create=True)
        file.append(b"0123456789")
        assert there.stream is not None
        there.stream.send([b"<", FileSlice(file, 2, 5), b">"])
        await asyncio.sleep(1)
        assert bytes(here.got) == b"<23456>"
        there.stream.send([FileSlice(file, 5, 5)])
        file.truncate(6)
        await asyncio.sleep(1)
        assert len(here.was_closed) == 1  # what was promised cannot be delivered

    world.run(main())


def test_a_paused_reader_stops_its_sender() -> None:
    world = World(5)

    async def main() -> None:
        there, here, _ = await _pair(world)
        assert here.stream is not None
        assert there.stream is not None
        there.stream.pause()
        here.stream.send([bytes(1_000_000)])
        await asyncio.sleep(10)
        assert not there.got
        assert here.stream.queued_bytes() > 500_000
        there.stream.resume()
        await asyncio.sleep(60)
        assert len(there.got) == 1_000_000
        assert here.stream.queued_bytes() == 0

    world.run(main())


def test_a_killed_peer_resets_and_a_dead_machine_is_silent() -> None:
    for power_cut in (False, True):
        world = World(5)

        async def main(world: World = world, power_cut: bool = power_cut) -> None:
            _, here, _ = await _pair(world)
            assert here.stream is not None
            world.machines["server"].crash(power_cut=power_cut)
            await asyncio.sleep(5)
            assert bool(here.was_closed) != power_cut
            world.machines["server"].boot()
            here.stream.send([b"are you there?"])
            await asyncio.sleep(5)
            assert isinstance(here.was_closed[0], ConnectionResetError)

        world.run(main())


def test_a_blocked_link_delays_and_loses_nothing() -> None:
    world = World(5)

    async def main() -> None:
        there, here, _ = await _pair(world)
        assert here.stream is not None
        world.net.block("10.0.0.2", "10.0.0.1")
        here.stream.send([b"late"])
        await asyncio.sleep(30)
        assert not there.got
        world.net.heal()
        await asyncio.sleep(2)
        assert bytes(there.got) == b"late"

    world.run(main())


def test_connecting_is_refused_where_nobody_listens_and_hangs_where_nobody_is() -> None:
    world = World(5)

    async def main() -> None:
        server, client = world.machine("server"), world.machine("client")
        network = client.boot().network
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await network.connect(server.ip, 80, Peer().accept)
        server.boot()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(server.ip, 80, Peer().accept)

    world.run(main())


def test_a_cut_tells_both_ends() -> None:
    world = World(5)

    async def main() -> None:
        there, here, _ = await _pair(world)
        world.net.cut_all()
        await asyncio.sleep(1)
        for peer in (there, here):
            assert isinstance(peer.was_closed[0], ConnectionResetError)

    world.run(main())


def test_a_link_has_weather_of_its_own() -> None:
    world = World(5)

    async def main() -> None:
        there, here, _ = await _pair(world)
        assert here.stream is not None
        assert there.stream is not None
        world.net.link_weather["10.0.0.2", "10.0.0.1"] = Weather(latency_seconds=5.0)
        here.stream.send([b"slow"])
        there.stream.send([b"quick"])
        await asyncio.sleep(1)
        assert bytes(here.got) == b"quick"
        assert not there.got
        await asyncio.sleep(5)
        assert bytes(there.got) == b"slow"
        world.net.heal()
        assert not world.net.link_weather

    world.run(main())


def test_a_slow_link_takes_the_time_its_bytes_need() -> None:
    world = World(5)

    async def main() -> None:
        there, here, _ = await _pair(world)
        assert here.stream is not None
        world.net.link_weather["10.0.0.2", "10.0.0.1"] = Weather(bytes_per_second=1_000.0)
        here.stream.send([bytes(10_000)])
        await asyncio.sleep(5)
        assert len(there.got) < 10_000
        await asyncio.sleep(6)
        assert len(there.got) == 10_000

    world.run(main())


def test_one_link_is_cut_and_the_others_stay() -> None:
    world = World(5)

    async def main() -> None:
        server = world.machine("server")
        there = [Peer(), Peer()]
        host = server.boot()
        waiting = iter(there)
        host.network.bind("", 80, lambda stream: next(waiting).accept(stream)).start()
        near, far = world.machine("near"), world.machine("far")
        peers = [Peer(), Peer()]
        await near.boot().network.connect(server.ip, 80, peers[0].accept)
        await far.boot().network.connect(server.ip, 80, peers[1].accept)
        assert world.net.cut_between(server.ip, near.ip) == 2
        await asyncio.sleep(1)
        assert peers[0].was_closed
        assert not peers[1].was_closed

    world.run(main())


def test_a_paused_machine_is_connected_to_and_answers_when_it_resumes() -> None:
    world = World(5)

    async def main() -> None:
        server, client = world.machine("server"), world.machine("client")
        there, here = Peer(), Peer()
        server.boot().network.bind("", 80, there.accept).start()
        server.pause()
        stream = await client.boot().network.connect(server.ip, 80, here.accept)
        stream.send([b"hello"])
        await asyncio.sleep(10)
        assert there.stream is None
        server.resume()
        await asyncio.sleep(1)
        assert bytes(there.got) == b"hello"

    world.run(main())
