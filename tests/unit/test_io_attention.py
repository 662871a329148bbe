"""A loop that stays awake for a peer that answers at once, and for nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from selectors import EVENT_READ

import pytest

from headwater.io.attention import WatchfulSelector

MICROSECOND = 1e-6
STREAK = 64


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
        self.selector = stack.enter_context(WatchfulSelector(self.clock))
        self.peers: list[tuple[socket.socket, socket.socket]] = []
        for _ in range(2):
            near, far = socket.socketpair()
            self.peers.append((stack.enter_context(near), stack.enter_context(far)))
            self.selector.register(near, EVENT_READ)

    def ask(self, peer: int = 0, *, is_small: bool = True) -> None:
        """The peer sends, and the loop finds it and serves it."""
        near, far = self.peers[peer]
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
    for _ in range(STREAK + 1):
        assert not bench.selector.is_awake
        bench.ask()
    assert bench.selector.is_awake


def test_it_stays_awake_only_after_many_quick_requests_of_one_peer(bench: Bench) -> None:
    awake(bench)
    for _ in range(3 * STREAK):
        bench.ask()
        assert bench.selector.is_awake


def test_large_requests_let_it_sleep(bench: Bench) -> None:
    for _ in range(10 * STREAK):
        bench.ask(is_small=False)
        assert not bench.selector.is_awake
    awake(bench)
    for _ in range(STREAK):
        bench.ask(is_small=False)
    assert not bench.selector.is_awake


def test_requests_that_do_not_wait_for_answers_let_it_sleep(bench: Bench) -> None:
    bench.clock.step = 2 * MICROSECOND
    for _ in range(10 * STREAK):
        bench.ask()
        assert not bench.selector.is_awake


def test_a_peer_that_stops_waiting_for_answers_lets_it_sleep_again(bench: Bench) -> None:
    awake(bench)
    bench.clock.step = 2 * MICROSECOND
    for _ in range(STREAK):
        bench.ask()
    assert not bench.selector.is_awake


def test_peers_that_take_turns_let_it_sleep(bench: Bench) -> None:
    for number in range(10 * STREAK):
        bench.ask(number % 2)
        assert not bench.selector.is_awake


def test_requests_with_pauses_between_them_let_it_sleep(bench: Bench) -> None:
    bench.clock.step = 400 * MICROSECOND
    for _ in range(10 * STREAK):
        bench.ask()
        assert not bench.selector.is_awake


def test_a_first_look_in_vain_ends_it(bench: Bench) -> None:
    awake(bench)
    bench.silence()
    assert not bench.selector.is_awake
    awake(bench)


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
    bench.silence()
    assert not bench.selector.is_awake


def test_a_wait_that_is_shorter_than_a_look_is_only_that(bench: Bench) -> None:
    awake(bench)
    assert bench.selector.select(0) == []
    assert bench.selector.is_awake
