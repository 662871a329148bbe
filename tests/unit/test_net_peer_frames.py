"""Frames over a stream that the test moves, however their bytes are cut."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.io import Address
from headwater.net.peer import PeerConnection, PeerError
from headwater.net.peer.errors import Disconnected
from headwater.protocol.frame import encode_response
from headwater.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.fake_broker import story

VERSION = 12
HERE = Address("h", 1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class HeldStream:
    """Received bytes stay in the kernel until the stream takes a turn."""

    def __init__(self) -> None:
        self.local = self.peer = HERE
        self.sent: list[bytes] = []
        self.held: deque[bytes] = deque()
        self.receiver: PeerConnection[PeerError]
        self.is_gone = False
        self.is_stuck = False  # the kernel takes nothing
        self.queued = 0

    def send(self, parts: Sequence[Any]) -> None:
        self.sent.append(b"".join(parts))
        self.queued += len(self.sent[-1]) if self.is_stuck else 0

    def expect(self) -> None: ...

    def put_first(self) -> None: ...

    def queued_bytes(self) -> int:
        return self.queued

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None:
        self.is_gone = True

    def abort(self) -> None:
        self.is_gone = True

    def turn(self, seconds: float) -> bool:
        if not self.held:
            return False
        piece = self.held.popleft()
        while piece:
            room = self.receiver.buffer()
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            piece = piece[count:]
            self.receiver.received(count)
        return True


def connection_over(stream: HeldStream, clock: Clock) -> PeerConnection[PeerError]:
    connection: PeerConnection[PeerError] = PeerConnection(
        stream, node_id=1, address=HERE, clock=clock, client_id="t", request_timeout_ms=1000
    )
    stream.receiver = connection
    connection.versions = {3: (0, 13)}
    return connection


def answer(number: int, topics: int) -> bytes:
    topic = MetadataResponseTopic(name="x" * 100, topic_id=bytes(16))
    response = MetadataResponse(controller_id=number, topics=[topic] * topics)
    return bytes(encode_response(response, VERSION, number))


@given(
    st.lists(st.sampled_from([0, 1, 30, 600, 2_000]), min_size=1, max_size=6),
    st.lists(st.integers(1, 100_000), max_size=30),
)
def test_answers_are_the_same_however_the_bytes_are_cut(sizes: list[int], cuts: list[int]) -> None:
    @story
    async def run() -> None:
        stream = HeldStream()
        connection = connection_over(stream, Clock())
        seen: list[tuple[int, int]] = []

        def done(message: Any, error: PeerError | None) -> None:
            assert error is None
            seen.append((message.controller_id, len(message.topics)))

        for _ in sizes:
            connection.post(MetadataRequest(topics=[]), VERSION, done, timeout_ms=1000)
        data = b"".join(answer(number, topics) for number, topics in enumerate(sizes, 1))
        for cut in cuts:
            stream.held.append(data[:cut])
            data = data[cut:]
        stream.held.append(data)
        while connection.pump(0):
            pass
        assert seen == list(enumerate(sizes, 1))
        assert connection.is_open
        connection.close()

    run()


@story
async def test_an_answer_that_waits_to_be_read_is_not_late() -> None:
    """A busy loop kept the connection from reading; the peer is not to blame."""
    stream, clock = HeldStream(), Clock()
    connection = connection_over(stream, clock)
    ended: asyncio.Future[PeerError | None] = asyncio.get_running_loop().create_future()
    connection.post(
        MetadataRequest(topics=[]), VERSION, lambda _, error: ended.set_result(error), timeout_ms=1
    )
    whole = answer(1, 2_000)
    stream.held += [whole[:50_000], whole[50_000:]]
    clock.now = 60.0
    assert await ended is None
    assert connection.is_open
    connection.close()


@story
async def test_an_answer_may_be_awaited_from_within_another() -> None:
    """A callback that pumps, as a producer whose buffer is full does, meets the next answers."""
    stream = HeldStream()
    connection = connection_over(stream, Clock())
    seen: list[int] = []

    def first(message: Any, error: PeerError | None) -> None:
        seen.append(message.controller_id)
        while connection.in_flight:
            assert connection.pump(0)

    def other(message: Any, error: PeerError | None) -> None:
        seen.append(message.controller_id)

    for done in (first, other, other):
        connection.post(MetadataRequest(topics=[]), VERSION, done, timeout_ms=1000)
    one, two, three = answer(1, 1), answer(2, 2_000), answer(3, 1)
    stream.held += [one + two[:100], two[100:] + three]
    assert connection.pump(0)
    assert seen == [1, 2, 3]
    connection.close()


@story
async def test_numbers_of_requests_begin_again_before_they_end() -> None:
    stream = HeldStream()
    connection = connection_over(stream, Clock())
    connection._correlation_id = 2**31 - 2
    seen: list[int] = []

    def done(message: Any, error: PeerError | None) -> None:
        assert error is None
        seen.append(message.controller_id)

    for _ in range(2):
        connection.post(MetadataRequest(topics=[]), VERSION, done, timeout_ms=1000)
    stream.held += [answer(2**31 - 1, 0), answer(0, 0)]
    while connection.pump(0):
        pass
    assert seen == [2**31 - 1, 0]
    connection.close()


@story
async def test_a_request_without_an_answer_is_done_when_the_kernel_has_it() -> None:
    stream = HeldStream()
    connection = connection_over(stream, Clock())
    ends: list[tuple[int, PeerError | None]] = []

    def post(number: int) -> None:
        connection.post(
            MetadataRequest(topics=[]),
            VERSION,
            lambda _, error: ends.append((number, error)),
            timeout_ms=1000,
            is_answered=False,
        )

    post(1)
    assert ends == []  # its user is not called from within
    await asyncio.sleep(0)
    assert ends == [(1, None)]

    stream.is_stuck = True
    post(2)
    post(3)
    await asyncio.sleep(0)
    assert ends == [(1, None)]
    stream.queued = len(stream.sent[-1])  # one of the two is gone
    assert connection.pump(0)
    assert ends == [(1, None), (2, None)]
    stream.queued = 0
    connection.drained()
    await asyncio.sleep(0)
    assert ends == [(1, None), (2, None), (3, None)]

    post(4)
    connection.close()
    assert isinstance(ends[-1][1], Disconnected)
    stream.queued = 0
    await asyncio.sleep(0)
    assert [number for number, _ in ends] == [1, 2, 3, 4]
