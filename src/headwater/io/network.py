"""Connections as streams of bytes, with as little overhead as possible.

A `Stream` reads directly into the buffer of its `Receiver` and passes data to the kernel at once
if the kernel accepts it. A connection has no task and no future: the receiver is called when data
arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.io.disk import FileSlice

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.io.tls import Tls


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Receiver(Protocol):
    """Handles the events of a stream. All calls are made on the loop, one at a time."""

    def buffer(self) -> memoryview:
        """Returns the memory for the next bytes; never empty."""

    def received(self, count: int) -> None:
        """Handles `count` new bytes in the buffer. 0 means that there was nothing to read after a
        call of `buffer`, so an empty buffer can be released."""

    def drained(self) -> None:
        """Called when the kernel has taken all queued data."""

    def ended(self) -> None:
        """Called when the peer has shut down its side."""

    def closed(self, error: OSError | None) -> None:
        """Called once, as the last call, when the connection is closed."""


class _Nobody:
    """The receiver of a stream that has not started, or is closed."""

    __slots__ = ()

    def buffer(self) -> memoryview:
        raise AssertionError("read without a receiver")

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def ended(self) -> None: ...

    def closed(self, error: OSError | None) -> None: ...


NO_RECEIVER: Receiver = _Nobody()


def without_frames(error: OSError) -> OSError:
    """Removes the traceback and context of an error that is kept. They refer to frames, which refer
    to the stream and the data it was sending: the file of a deleted log would stay open."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


class Stream(Protocol):
    local: Address
    peer: Address

    def send(self, parts: Sequence[Buffer | FileSlice]) -> None:
        """Sends or queues the parts, which must not change until they are sent."""

    def expect(self) -> None:
        """Call this before sending a small request whose response the caller awaits alone."""

    def put_first(self) -> None:
        """Has the loop serve this peer before others that are ready in the same turn: a vote or a
        heartbeat that waits behind clients costs elections and sessions. And it never polls for it
        (`io/attention`): a follower fetches again at once all day, and the nodes of a cluster may
        share their cores."""

    def queued_bytes(self) -> int: ...

    def pause(self) -> None:
        """Stops reading until `resume`."""

    def resume(self) -> None: ...

    def turn(self, seconds: float) -> bool:
        """Handles the pending events of this stream once, waiting up to `seconds` for one; returns
        whether there was any. For callers that block the loop and must make progress."""

    def close(self) -> None:
        """Closes the connection when the queued data has been sent."""

    def abort(self) -> None:
        """Closes the connection immediately."""


class Listener(Protocol):
    """A bound address. Nothing listens there before `start`: connections are refused."""

    address: Address

    def start(self) -> None: ...

    def pause(self, seconds: float) -> None:
        """Accepts nothing for a while; the kernel keeps who connects."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Options for the sockets of a listener. By default the system adjusts the buffers of a
    connection as needed; a given size is fixed."""

    backlog: int = 128
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


SYSTEM_SOCKETS = SocketOptions()


class Network(Protocol):
    def host_name(self) -> str:
        """Returns the name of this host, as others know it."""

    def bind(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        options: SocketOptions = SYSTEM_SOCKETS,
    ) -> Listener: ...

    async def connect(
        self, host: str, port: int, receiver: Callable[[Stream], Receiver], tls: Tls | None = None
    ) -> Stream:
        """Connects; with `tls`, the TLS handshake is complete when this returns."""
