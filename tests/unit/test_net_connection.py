"""Connections: frames out of pieces, answers in order, bounds."""

from __future__ import annotations

import struct
from random import Random

from headwater.net.connection import Answer, CloseConnection, Connection, PendingResponse
from headwater.net.limits import NetLimits
from tests.support.pipes import FakeServer, Pipe


class Peer:
    """A connection whose requests are kept, and answered by hand or echoed."""

    def __init__(self, *, echo: bool = True, limits: NetLimits | None = None) -> None:
        self.server = FakeServer(limits)
        self.pipe = Pipe()
        self.frames: list[bytes] = []
        self.waiting: list[PendingResponse] = []
        self.echo = echo
        self.overlapping = False
        self.connection = Connection(self.pipe, "PLAINTEXT", self.server, self.serve)  # type: ignore[arg-type]

    def serve(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        data = bytes(frame)
        self.frames.append(data)
        if data == b"bad":
            raise CloseConnection("a bad one")
        if self.echo:
            return (data,)
        pending = PendingResponse(overlapping=self.overlapping)
        self.waiting.append(pending)
        return pending

    def arrive(self, data: bytes) -> None:
        while data and not self.pipe.paused and not self.pipe.ended:
            space = self.connection.buffer()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_frames_come_out_whole_however_they_are_cut() -> None:
    random = Random(7)
    messages = [random.randbytes(random.choice((0, 1, 50, 3000, 200_000))) for _ in range(60)]
    stream = b"".join(map(framed, messages))
    peer = Peer()
    while stream:
        cut = random.choice((1, 3, 4, 5, 700, 65536, 100_000))
        peer.arrive(stream[:cut])
        stream = stream[cut:]
    assert peer.frames == messages
    assert b"".join(peer.pipe.sent) == b"".join(messages)


def test_the_next_request_starts_when_the_one_before_is_answered() -> None:
    peer = Peer(echo=False)
    peer.arrive(framed(b"one") + framed(b"two") + framed(b"three"))
    assert peer.frames == [b"one"]
    peer.waiting[0].answer((b"1",))
    assert peer.frames == [b"one", b"two"]
    assert peer.pipe.sent == [b"1"]


def test_overlapping_requests_are_answered_in_the_order_they_came() -> None:
    peer = Peer(echo=False)
    peer.overlapping = True
    peer.arrive(framed(b"one") + framed(b"two") + framed(b"three"))
    assert len(peer.frames) == 3
    peer.waiting[2].answer((b"3",))
    peer.waiting[1].answer((b"2",))
    assert peer.pipe.sent == []
    peer.waiting[0].answer((b"1",))
    assert peer.pipe.sent == [b"1", b"2", b"3"]


def test_a_peer_that_floods_while_it_waits_is_not_read_any_more() -> None:
    peer = Peer(echo=False)
    peer.arrive(framed(b"first"))
    peer.arrive(framed(bytes(1000)) * 1000)
    assert peer.pipe.paused
    assert peer.frames == [b"first"]
    peer.waiting[0].answer((b"1",))
    assert not peer.pipe.paused


def test_an_impossible_length_ends_the_connection_with_one_line() -> None:
    for size in (-1, -(2**31), NetLimits().frame_bytes_max + 1, 2**31 - 1):
        peer = Peer()
        peer.arrive(struct.pack(">i", size) + b"rest")
        assert peer.pipe.ended
        assert len(peer.server.refusals) == 1
        assert str(size) in peer.server.refusals[0]
        assert peer.frames == []


def test_a_refused_request_ends_the_connection_and_serves_no_more() -> None:
    peer = Peer()
    peer.arrive(framed(b"good") + framed(b"bad") + framed(b"never"))
    assert peer.frames == [b"good", b"bad"]
    assert peer.pipe.sent == [b"good"]
    assert peer.server.refusals == ["a bad one"]


def test_a_large_frame_waits_for_room() -> None:
    peer = Peer()
    peer.server.room = False
    peer.arrive(framed(bytes(100_000))[:1000])
    peer.server.room = True
    peer.connection.on_memory()
    peer.arrive(framed(bytes(100_000))[1000:])
    assert peer.frames == [bytes(100_000)]


def test_a_peer_that_ends_its_half_gets_what_it_is_owed() -> None:
    peer = Peer(echo=False)
    peer.arrive(framed(b"one"))
    peer.connection.ended()
    assert not peer.pipe.ended
    peer.waiting[0].answer((b"1",))
    assert peer.pipe.sent == [b"1"]
    assert peer.pipe.ended


def test_answers_to_a_burst_go_out_together() -> None:
    peer = Peer()
    peer.arrive(framed(b"one") + framed(b"two") + framed(b"three"))
    assert peer.pipe.sent == [b"onetwothree"]


def test_an_answer_for_a_connection_that_is_gone_goes_nowhere() -> None:
    peer = Peer(echo=False)
    peer.arrive(framed(b"one"))
    peer.connection.closed(None)
    peer.waiting[0].answer((b"1",))
    assert peer.pipe.sent == []
