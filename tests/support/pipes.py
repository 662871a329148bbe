"""The surroundings of a server's connection, for tests that act as its peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.io import Address
from headwater.net.connection import Connection
from headwater.net.limits import NetLimits


class FakeServer:
    """The part of a server that a connection uses; the test grants room for large frames."""

    def __init__(self, limits: NetLimits | None = None) -> None:
        self.limits = limits or NetLimits()
        self.refusals: list[str] = []
        self.room = True

    def now(self) -> float:
        return 0.0

    def reserve(self, size: int, connection: Connection) -> bool:
        return self.room

    def release(self, size: int, connection: Connection) -> None: ...

    def forget(self, connection: Connection) -> None: ...

    def soon(self, callback: Callable[[], None]) -> None:
        callback()  # the next turn of the loop begins at once

    def log_refusal(self, connection: Connection, reason: str) -> None:
        self.refusals.append(reason)


class Pipe:
    """A stream whose other end is the test."""

    local = Address("127.0.0.1", 9092)
    peer = Address("127.0.0.1", 50000)

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.paused = False
        self.ended = False

    def send(self, parts: Sequence[Any]) -> None:
        self.sent.append(b"".join(bytes(part) for part in parts))

    def queued_bytes(self) -> int:
        return 0

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True
