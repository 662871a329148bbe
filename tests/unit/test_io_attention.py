"""A loop that stays awake for a peer that answers at once, and for nobody else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from selectors import EVENT_READ

import pytest

from headwater.io.attention import Lookout, WatchfulLoop, WatchfulSelector
from headwater.io.sockets import SocketStream

MICROSECOND = 1e-6
STREAK = 64
TRIAL = 512
TERM = 8192


class Clock:
    """Each look at it takes some time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.step = 15 * MICROSECOND

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Bench:
    """A selector with two peers."""

    def __init__(self, stack: ExitStack) -> None:
        self.clock = Clock()
        self.asleep = 45 * MICROSECOND  # how long the peer's next request takes
        self.awake = 15 * MICROSECOND
        self.selector = stack.enter_context(WatchfulSelector(self.clock))
        self.peers: list[tuple[socket.socket, socket.socket]] = []
        for _ in range(2):
            near, far = socket.socketpair()
            self.peers.append((stack.enter_context(near), stack.enter_context(far)))
            self.selector.register(near, EVENT_READ)

    def ask(self, peer: int = 0, *, is_small: bool = True) -> None:
        """The peer sends, and the loop finds it and serves it."""
        near, far = self.peers[peer]
        self.clock.step = self.awake if self.selector.is_awake else self.asleep
        far.send(b"x")
        ((key, _),) = self.selector.select(1.0)
        assert key.fileobj is near
        near.recv(1)
        if is_small:
            self.selector.expect(near.fileno())

    def silence(self) -> None:
        """The peer that is expected does not send for as long as the loop waits."""
        self.selector.expect(self.peers[0][0].fileno())
        assert self.selector.select(0.001) == []


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack)


def awake(bench: Bench) -> None:
    """Brings it to stay awake: after a streak of requests and a trial."""
    for _ in range(STREAK + 1):
        assert not bench.selector.is_awake
        bench.ask()
    tried = 0
    for _ in range(TRIAL):
        tried += bench.selector.is_awake
        bench.ask()
    assert tried == TRIAL // 2
    assert bench.selector.is_awake


def awake_share(bench: Bench, requests: int) -> float:
    """The share of so many requests for which it stayed awake."""
    found = 0
    for _ in range(requests):
        found += bench.selector.is_awake
        bench.ask()
    return found / requests


def test_it_stays_awake_only_after_many_quick_requests_of_one_peer(bench: Bench) -> None:
    awake(bench)
    assert awake_share(bench, 3 * STREAK) == 1.0


def test_it_stays_awake_as_long_as_that_makes_waits_shorter(bench: Bench) -> None:
    awake(bench)
    assert awake_share(bench, 5 * TERM) > 0.95
    bench.asleep = bench.awake
    awake_share(bench, TERM + TRIAL)
    assert awake_share(bench, 50 * TERM) < 0.02


def test_it_sleeps_if_the_peer_sends_no_sooner_when_it_is_awake(bench: Bench) -> None:
    """As Java's producer does on two cores: its threads need the one that the loop would hold."""
    bench.asleep = bench.awake = 100 * MICROSECOND
    assert awake_share(bench, 50 * TERM) < 0.02


def test_a_few_long_waits_count_as_much_as_many_short_ones(bench: Bench) -> None:
    for number in range(20 * TRIAL):
        is_held_up = bench.selector.is_awake and number % 50 == 0
        bench.awake = (2000 if is_held_up else 15) * MICROSECOND
        bench.ask()
    assert not bench.selector.is_awake


def test_another_peer_is_tried_at_once(bench: Bench) -> None:
    bench.asleep = bench.awake
    awake_share(bench, 2 * TRIAL)
    assert not bench.selector.is_awake
    bench.asleep = 3 * bench.awake
    for _ in range(STREAK + TRIAL + 2):
        bench.ask(1)
    assert bench.selector.is_awake


def test_large_requests_let_it_sleep(bench: Bench) -> None:
    for _ in range(10 * STREAK):
        bench.ask(is_small=False)
        assert not bench.selector.is_awake
    awake(bench)
    for _ in range(2 * STREAK):
        bench.ask(is_small=False)
    assert not bench.selector.is_awake


def test_requests_that_do_not_wait_for_answers_let_it_sleep(bench: Bench) -> None:
    bench.asleep = bench.awake = 2 * MICROSECOND
    for _ in range(10 * STREAK):
        bench.ask()
        assert not bench.selector.is_awake


def test_a_peer_that_stops_waiting_for_answers_lets_it_sleep_again(bench: Bench) -> None:
    awake(bench)
    bench.asleep = bench.awake = 2 * MICROSECOND
    for _ in range(STREAK):
        bench.ask()
    assert not bench.selector.is_awake


def test_peers_that_take_turns_let_it_sleep(bench: Bench) -> None:
    for number in range(10 * STREAK):
        bench.ask(number % 2)
        assert not bench.selector.is_awake


def test_requests_with_pauses_between_them_let_it_sleep(bench: Bench) -> None:
    bench.asleep = bench.awake = 400 * MICROSECOND
    for _ in range(10 * STREAK):
        bench.ask()
        assert not bench.selector.is_awake


def test_a_pause_now_and_then_is_forgiven_and_silence_is_not(bench: Bench) -> None:
    awake(bench)
    for _ in range(10):
        for _ in range(20):
            bench.ask()
        bench.silence()
        assert bench.selector.is_awake
    for _ in range(10):
        bench.silence()
    assert not bench.selector.is_awake
    awake(bench)


def test_it_sleeps_when_others_come_instead(bench: Bench) -> None:
    awake(bench)
    near, _ = bench.peers[0]
    for _ in range(STREAK):
        bench.ask(1)
        bench.selector.expect(near.fileno())
    assert not bench.selector.is_awake


def test_it_sleeps_when_others_want_the_core(bench: Bench) -> None:
    awake(bench)
    bench.clock.step = 60 * MICROSECOND  # between two looks: it was not running
    for _ in range(2):
        bench.silence()
    assert not bench.selector.is_awake


def test_a_wait_that_is_shorter_than_a_look_is_only_that(bench: Bench) -> None:
    awake(bench)
    assert bench.selector.select(0) == []
    assert bench.selector.is_awake


class Client:
    """A loop that a client keeps awake or not; it goes round when the test says so."""

    def __init__(self, stack: ExitStack) -> None:
        self.clock = Clock()
        self.clock.step = 0.0
        self.loop = asyncio.new_event_loop()
        stack.callback(self.loop.close)
        self.looks = 0
        self.lookout = Lookout(self.loop, self._now)

    def _now(self) -> float:
        self.looks += 1
        return self.clock.now

    def turn(self, seconds: float = 10 * MICROSECOND) -> None:
        self.clock.now += seconds
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def ask(self, seconds: float = 40 * MICROSECOND, *, turn: float = 10 * MICROSECOND) -> int:
        """A request whose answer takes so long; how often the loop was kept from sleeping."""
        self.lookout.expect()
        self.looks = 0
        answered = self.clock.now + seconds
        while self.clock.now < answered:
            self.turn(turn)
        looks = self.looks
        self.lookout.came()
        return looks


@pytest.fixture
def client() -> Iterator[Client]:
    with ExitStack() as stack:
        yield Client(stack)


def awake_client(client: Client) -> None:
    for _ in range(STREAK):
        assert not client.lookout.is_awake
        assert client.ask() == 0
    assert client.lookout.is_awake


def test_nodes_of_the_cluster_come_before_clients_until_they_are_gone(bench: Bench) -> None:
    def ready() -> list[object]:
        return [key.fileobj for key, _ in bench.selector.select(1.0)]

    (client, to_client), (node, to_node) = bench.peers
    to_client.send(b"x")
    to_node.send(b"x")
    assert ready() == [client, node]
    bench.selector.put_first(node.fileno())
    assert ready() == [node, client]
    bench.selector.forget(node.fileno())
    assert ready() == [client, node]


def test_a_stream_is_put_first_until_it_ends() -> None:
    loop = WatchfulLoop()
    served: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name
            self.memory = memoryview(bytearray(16))

        def buffer(self) -> memoryview:
            return self.memory

        def received(self, count: int) -> None:
            served.append(self.name)

        def drained(self) -> None: ...
        def ended(self) -> None: ...
        def closed(self, error: OSError | None) -> None: ...

    async def main() -> None:
        with ExitStack() as stack:
            streams = []
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for name in ("client", "node"):
                far = stack.enter_context(socket.create_connection(listener.getsockname()))
                near, _ = listener.accept()
                near.setblocking(False)
                streams.append(SocketStream(near, loop))
                streams[-1].start(Noted(name))
                far.send(b"x")
            streams[1].put_first()
            await asyncio.sleep(0.05)
            fd = streams[1]._fd
            assert loop.attention._first == {fd}
            for stream in streams:
                stream.abort()
            assert loop.attention._first == set()

    loop.run_until_complete(main())
    loop.close()
    assert served == ["node", "client"]


def test_a_client_stays_awake_after_many_quick_answers(client: Client) -> None:
    awake_client(client)
    for _ in range(3 * STREAK):
        assert client.ask() > 0
        assert client.lookout.is_awake


def test_a_client_of_a_distant_broker_sleeps(client: Client) -> None:
    for _ in range(10 * STREAK):
        assert client.ask(500 * MICROSECOND) == 0


def test_a_client_looks_for_a_moment_and_then_sleeps(client: Client) -> None:
    awake_client(client)
    looks = client.ask(1.0, turn=20 * MICROSECOND)
    assert 0 < looks < 12
    assert not client.lookout.is_awake


def test_a_client_whose_loop_has_other_work_sleeps(client: Client) -> None:
    awake_client(client)
    client.ask(120 * MICROSECOND, turn=60 * MICROSECOND)
    assert not client.lookout.is_awake


def test_a_client_that_loses_its_core_again_and_again_sleeps(client: Client) -> None:
    awake_client(client)
    for _ in range(2 * STREAK):
        client.ask()
    for _ in range(2):
        assert client.lookout.is_awake
        client.ask(120 * MICROSECOND, turn=60 * MICROSECOND)
    assert not client.lookout.is_awake


def test_a_client_that_asks_again_before_the_loop_went_round_looks_once_a_turn(
    client: Client,
) -> None:
    awake_client(client)
    client.ask()
    for _ in range(20):  # the answer came and the next request goes out in the same turn
        client.lookout.expect()
        client.lookout.came()
    client.lookout.expect()
    client.looks = 0
    client.turn()
    assert client.looks == 1


def test_what_comes_unasked_keeps_nobody_awake(client: Client) -> None:
    for _ in range(10 * STREAK):
        client.lookout.came()
    assert not client.lookout.is_awake
