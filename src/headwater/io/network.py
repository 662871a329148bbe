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
        """So many bytes have been put into the buffer."""

    def drained(self) -> None:
        """All that was queued has been given to the kernel."""

    def ended(self) -> None:
        """The peer will send no more."""

    def closed(self, error: OSError | None) -> None:
        """The connection is gone; called once, last."""


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
