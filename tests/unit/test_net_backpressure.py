"""A peer that asks and does not read: what waits for it is bounded, and nothing is forgotten."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headwater.io import Address
from headwater.net.connection import Answer, Connection, PendingResponse
from headwater.net.limits import NetLimits

ANSWER_BYTES = 10_000
UNSENT_BYTES_MAX = 200_000


class Server:
    def __init__(self) -> None:
        self.limits = NetLimits(unsent_bytes_max=UNSENT_BYTES_MAX)

        self.time = 0.0
        self.later: list[Callable[[], None]] = []

    def now(self) -> float:
        return self.time

    def soon(self, callback: Callable[[], None]) -> None:
        self.later.append(callback)

    def turn(self) -> None:
        later, self.later = self.later, []
        for callback in later:
            callback()

    def reserve(self, size: int, connection: Connection) -> bool:
        return True

    def release(self, size: int, connection: Connection) -> None: ...

    def forget(self, connection: Connection) -> None: ...


class FullPipe:
    """A stream whose other end takes nothing until it is told to."""

    local = Address("127.0.0.1", 9092)
    peer = Address("127.0.0.1", 50000)

    def __init__(self) -> None:
        self.queued = 0
        self.paused = False
        self.ended = False

    def send(self, parts: Sequence[Any]) -> None:
        self.queued += sum(map(len, parts))

    def queued_bytes(self) -> int:
        return self.queued

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.ended = True


class Asking:
    """Requests that are numbered, and answered at once or later."""

    def __init__(self, *, later: bool = False) -> None:
        self.pipe = FullPipe()
        self.served: list[int] = []
        self.waiting: list[PendingResponse] = []
        self.later = later
        self.most_queued = 0
        self.seconds = 0.0  # that a request takes
        self.server = Server()
        self._unread = b""
        self.connection = Connection(self.pipe, "PLAINTEXT", self.server, self._serve)  # type: ignore[arg-type]

    def _serve(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        (number,) = struct.unpack_from(">i", frame)
        self.served.append(number)
        self.server.time += self.seconds
        if not self.later:
            return (bytes(ANSWER_BYTES),)
        self.waiting.append(PendingResponse())
        return self.waiting[-1]

    def ask(self, count: int, size: int = 4) -> None:
        for number in range(count):
            self._unread += struct.pack(">ii", size, number) + bytes(size - 4)
        self.deliver()

    def deliver(self) -> None:
        """Received bytes are delivered as long as reading is not paused."""
        while self._unread and not self.pipe.paused:
            space = self.connection.buffer()
            chunk = self._unread[: len(space)]
            space[: len(chunk)] = chunk
            self._unread = self._unread[len(chunk) :]
            self.connection.received(len(chunk))
        self.most_queued = max(self.most_queued, self.pipe.queued)

    def read_all(self) -> None:
        """The peer takes what is queued; the stream says so, as the real one does."""
        self.pipe.queued = 0
        self.connection.drained()
        self.deliver()


@pytest.mark.parametrize(("size", "count"), [(4, 1000), (100, 1000), (70_000, 40)])
def test_requests_wait_while_answers_are_not_taken(size: int, count: int) -> None:
    peer = Asking()
    peer.ask(count, size)
    for _ in range(count):
        if len(peer.served) == count:
            break
        peer.read_all()
    assert peer.served == list(range(count))
    assert peer.most_queued < 2 * UNSENT_BYTES_MAX
    assert not peer.pipe.paused


def test_a_late_answer_does_not_open_the_way_again() -> None:
    peer = Asking(later=True)
    peer.ask(1000)
    while peer.waiting:
        peer.waiting.pop(0).answer((bytes(ANSWER_BYTES),))
        peer.server.turn()
        peer.deliver()
    assert len(peer.served) < 1000
    assert peer.most_queued < 2 * UNSENT_BYTES_MAX
    peer.read_all()
    assert peer.waiting


def test_the_next_request_is_not_served_from_within_an_answer() -> None:
    """The answer may come while a request of another connection is being served."""
    peer = Asking(later=True)
    peer.ask(2)
    peer.waiting.pop().answer((b"1",))
    assert peer.served == [0]
    peer.server.turn()
    assert peer.served == [0, 1]


def test_a_peer_that_reads_late_is_not_mid_frame_and_is_let_go_when_it_has_all() -> None:
    peer = Asking()
    peer.ask(100)
    assert peer.pipe.paused
    assert not peer.connection.is_mid_frame()
    assert not peer.connection.close_if_quiet()
    while not peer.pipe.ended:
        assert peer.pipe.queued, "neither ended nor anything to read"
        peer.read_all()
    assert peer.served == list(range(100))


def test_many_slow_requests_at_once_leave_room_for_other_connections() -> None:
    peer = Asking()
    peer.seconds = 0.0015
    peer.ask(20)
    turns = [len(peer.served)]
    while peer.server.later:
        peer.server.later.pop(0)()
        turns.append(len(peer.served))
    assert turns == list(range(2, 21, 2))
    assert peer.served == list(range(20))
    assert not peer.pipe.paused
    assert not peer.connection.is_mid_frame()


@pytest.mark.parametrize("how", ["closed", "unread"])
def test_a_turn_that_comes_too_late_serves_nothing(how: str) -> None:
    peer = Asking()
    peer.seconds = 0.0015
    peer.ask(20)
    if how == "closed":
        peer.connection.closed(None)
    else:
        peer.pipe.queued = UNSENT_BYTES_MAX
        peer.server.later.pop(0)()
    served = len(peer.served)
    while peer.server.later:
        peer.server.later.pop(0)()
    assert len(peer.served) == served
    if how == "unread":
        while len(peer.served) < 20:
            peer.read_all()
            while peer.server.later:
                peer.server.later.pop(0)()
        assert peer.served == list(range(20))
