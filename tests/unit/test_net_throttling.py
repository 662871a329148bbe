"""A connection that has to wait: nothing more of it is served or read, and nothing is lost."""

from __future__ import annotations

import struct

from headwater.net.connection import Answer, Connection, PendingResponse
from tests.support.pipes import FakeServer, Pipe


class TimedServer(FakeServer):
    """A server whose time is the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.until: dict[Connection, float] = {}

    def now(self) -> float:
        return self.time

    def throttle(self, connection: Connection, seconds: float) -> None:
        self.until[connection] = max(self.until.get(connection, 0.0), self.time + seconds)

    def at(self, time: float) -> None:
        self.time = time
        for connection, until in list(self.until.items()):
            if until <= time:
                del self.until[connection]
                connection.unthrottle()


class Client:
    """Requests that say what is to become of them: `wait N` is throttled for N seconds, `later` is
    answered by hand."""

    def __init__(self) -> None:
        self.server = TimedServer()
        self.pipe = Pipe()
        self.served: list[str] = []
        self.waiting: list[PendingResponse] = []
        self.connection = Connection(self.pipe, "PLAINTEXT", self.server, self._serve)  # type: ignore[arg-type]

    def _serve(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        word = str(frame[:20], "utf-8").rstrip(".")
        self.served.append(word)
        if word.startswith("wait"):
            connection.throttle(float(word.split()[1]))
        if word == "later":
            self.waiting.append(PendingResponse(overlapping=True))
            return self.waiting[-1]
        return (word.encode(),)

    def send(self, *words: str, size: int = 0) -> None:
        data = b"".join(
            struct.pack(">i", len(framed)) + framed
            for framed in (word.ljust(size, ".").encode() for word in words)
        )
        while data:
            assert not self.pipe.paused
            space = self.connection.buffer()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)

    @property
    def answers(self) -> bytes:
        return b"".join(self.pipe.sent)


def test_the_answer_leaves_and_the_next_request_waits() -> None:
    client = Client()
    client.send("a", "wait 5", "b", "c")
    assert client.served == ["a", "wait 5"]
    assert client.answers == b"await 5"
    assert client.pipe.paused
    client.server.at(4.9)
    assert client.served == ["a", "wait 5"]
    client.server.at(5.0)
    assert client.served == ["a", "wait 5", "b", "c"]
    assert not client.pipe.paused


def test_each_request_behind_may_wait_again() -> None:
    client = Client()
    client.send("wait 1", "wait 1", "a")
    client.server.at(1.0)
    assert client.served == ["wait 1", "wait 1"]
    client.server.at(2.0)
    assert client.served[-1] == "a"


def test_a_large_request_waits_as_well() -> None:
    client = Client()
    client.send("wait 5")
    client.server.at(5.0)
    client.send("wait 5", size=3_000_000)
    assert client.served == ["wait 5", "wait 5"]
    assert client.pipe.paused
    client.server.at(10.0)
    client.send("a")
    assert client.served[-1] == "a"


def test_part_of_a_request_is_no_fault_of_who_may_not_send_the_rest() -> None:
    client = Client()
    connection = client.connection
    beginning = struct.pack(">i", 100) + b"half"
    client.send("later")
    space = connection.buffer()
    space[: len(beginning)] = beginning
    connection.received(len(beginning))
    connection.throttle(60)
    assert not connection.is_mid_frame()
    client.server.at(60.0)
    assert connection.frame_since in (None, 60.0)


def test_answers_of_earlier_requests_leave_while_it_waits() -> None:
    client = Client()
    client.send("later", "later")
    client.connection.throttle(5)
    for each in client.waiting:
        each.answer((b"done",))
    assert client.answers == b"donedone"
    assert client.pipe.paused
    client.server.at(5.0)
    assert not client.pipe.paused


def test_a_peer_that_has_left_is_let_go_at_the_end() -> None:
    client = Client()
    client.send("wait 5", "a")
    client.connection.ended()
    assert not client.pipe.ended
    client.server.at(5.0)
    assert client.served == ["wait 5", "a"]
    assert client.pipe.ended


def test_the_end_of_a_connection_ends_its_wait() -> None:
    client = Client()
    client.send("wait 5", "a")
    client.connection.closed(None)
    client.server.at(5.0)
    assert client.served == ["wait 5"]
    client.connection.throttle(5)
    assert not client.server.until
