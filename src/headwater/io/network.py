"""Connections, as whoever uses them sees them: streams of bytes with as little between as possible.

A `Stream` reads straight into the buffer that its `Receiver` offers and writes what it is given at
once if the kernel takes it. There is no task and no future for a connection: the receiver is called
when something came.
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
    """What a connection does with what arrives. All calls come from the loop, one at a time."""

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""

    def received(self, count: int) -> None:
        """Takes note of `count` bytes in the buffer. With 0 the last call of `buffer` was in vain:
        there was nothing to read, and a buffer that holds nothing can be given back."""

    def drained(self) -> None:
        """All that was queued has been given to the kernel."""

    def ended(self) -> None:
        """The peer will send no more."""

    def closed(self, error: OSError | None) -> None:
        """The connection is gone; called once, last."""


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
    """Strips an error that is kept of its traceback and context. They refer to frames, and these
    to the stream and what it was sending: the file of a deleted log would stay open."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


class Stream(Protocol):
    local: Address
    peer: Address

    def send(self, parts: Sequence[Buffer | FileSlice]) -> None:
        """Sends or queues; the parts must not change until they are sent."""

    def expect(self) -> None:
        """To be called before a small request is sent, if its answer alone is waited for."""

    def queued_bytes(self) -> int: ...

    def pause(self) -> None:
        """Reads no more until `resume`."""

    def resume(self) -> None: ...

    def turn(self, seconds: float) -> bool:
        """Does now, once, what the loop would do for this stream, waiting at most so long for
        something to do; whether there was any. For who holds the loop and must go on."""

    def close(self) -> None:
        """Ends the connection when what is queued has been sent."""

    def abort(self) -> None:
        """Ends it now."""


class Listener(Protocol):
    """An address that is taken. Whoever connects before `start` waits for it."""

    address: Address

    def start(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """How the sockets of a listener are made. The system grows a buffer as a connection needs it;
    one that is given a size keeps that."""

    backlog: int = 128
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


SYSTEM_SOCKETS = SocketOptions()


class Network(Protocol):
    def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        options: SocketOptions = SYSTEM_SOCKETS,
    ) -> Listener: ...

    async def connect(
        self, host: str, port: int, receiver: Callable[[Stream], Receiver], tls: Tls | None = None
    ) -> Stream:
        """With `tls`, the receiver's stream is secured when this returns."""
