"""One connection: cuts the stream into frames, hands each to the dispatcher, answers in order.

First stop of every journey. A frame is a view into the receive buffer and is valid only until the
dispatcher returns; whatever a request needs later must have been decoded by then. Requests of one
connection are served one after the other, as Kafka does: the next one starts when the one before
is answered. Only requests that the dispatcher calls `overlapping` (produce, which has done its
work before it waits) may start while others like them still wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING

from headwater import _core
from headwater.io import FileSlice, Receiver, Stream, close_slices
from headwater.io.buffers import RECEIVE_BUFFERS
from headwater.net.limits import NetLimits

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.net.server import Server

Answer = Sequence["Buffer | FileSlice"]
"""The bytes of one answer, size field included, ready to be sent."""

_SIZE = Struct(">i")
_SIZE_AND_API = Struct(">ih")
_OVERLAP_MAX = 64
_GATHER_BYTES_MAX = 64 * 1024


class PendingResponse:
    """A response that is not ready yet: call `answer` once, on the event loop."""

    __slots__ = ("_connection", "overlapping", "parts")

    def __init__(self, *, overlapping: bool = False) -> None:
        self.overlapping = overlapping
        self.parts: Answer | None = None
        self._connection: Connection | None = None

    def answer(self, parts: Answer) -> None:
        assert self.parts is None, "answered twice"
        if self._connection is not None and self._connection.gone:
            close_slices(parts)
            parts = ()
        self.parts = parts
        if self._connection is not None:
            self._connection.on_answered()

    def attach(self, connection: Connection) -> None:
        self._connection = connection


class CloseConnection(Exception):
    """The frame cannot be understood; the connection ends with this reason in the log."""


Dispatch = Callable[["Connection", memoryview], "Answer | PendingResponse"]
"""Serves one frame; an empty answer means that the peer expects none.

May raise `CloseConnection`."""


class Connection(Receiver):
    __slots__ = (
        "_dispatch",
        "_ended",
        "_gathered",
        "_gathering",
        "_large",
        "_large_filled",
        "_limits",
        "_read_end",
        "_read_start",
        "_server",
        "_view",
        "_waiting",
        "_write_paused",
        "active_at",
        "gone",
        "listener",
        "on_gone",
        "on_next",
        "session",
        "stream",
    )

    def __init__(self, stream: Stream, listener: str, server: Server, dispatch: Dispatch) -> None:
        self.stream = stream
        self.listener = listener
        self.session: object | None = None  # what the broker remembers of this connection
        self.active_at = server.now()
        self.gone = False
        self.on_gone: dict[Callable[[], None], None] = {}  # in order, as the simulator needs it
        # Set by a request that waits: told the API of the request that stands behind it.
        self.on_next: Callable[[int], None] | None = None
        self._server = server
        self._limits: NetLimits = server.limits
        self._dispatch = dispatch
        self._view: memoryview | None = None  # a buffer, lent while it has unserved bytes
        self._read_start = 0  # first byte that is not served
        self._read_end = 0  # first byte that is free
        self._large: memoryview | None = None  # a frame that does not fit the buffer
        self._large_filled = 0
        self._waiting: deque[PendingResponse] = deque()
        self._ended = False
        # The peer does not read its answers: no request starts until it does.
        self._write_paused = False
        self._gathering = False
        self._gathered = bytearray()

    # Bytes in

    def buffer(self) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        view = self._view
        if view is None:
            view = self._view = RECEIVE_BUFFERS.take()
        elif self._read_end == len(view):
            self._compact()
        return view[self._read_end :]

    def _compact(self) -> None:
        view = self._view
        assert view is not None
        left = self._read_end - self._read_start
        view[:left] = view[self._read_start : self._read_end]
        self._read_start = 0
        self._read_end = left

    def _release_buffer(self) -> None:
        """Gives the receive buffer back. Its bytes have been served, or will not be."""
        self._read_start = self._read_end = 0
        view = self._view
        if view is not None:
            self._view = None
            RECEIVE_BUFFERS.give_back(view)

    def received(self, count: int) -> None:
        if not count:
            if self._read_start == self._read_end:
                self._release_buffer()
            return
        self.active_at = self._server.now()
        if self._large is None:
            self._read_end += count
            self._serve_buffered()
            return
        self._large_filled += count
        if self._large_filled == len(self._large) and self._may_start():
            self._serve_large()

    def _may_start(self) -> bool:
        """Whether the next request may be looked at now."""
        if self._write_paused:
            return False
        waiting = self._waiting
        if not waiting:
            return True
        return waiting[-1].overlapping and len(waiting) < _OVERLAP_MAX

    def _serve_large(self) -> None:
        frame = self._large
        assert frame is not None
        self._large = None
        self._server.release(len(frame))
        if self._serve(frame) and not self._write_paused:
            self.stream.resume()
            self._serve_buffered()

    def _serve_buffered(self) -> None:
        """Serves every whole frame in the buffer, as long as requests may start. What can be
        answered at once goes out together: a pipelining peer costs one send, not one each."""
        self._gathering = True
        try:
            self._serve_frames()
        finally:
            self._gathering = False
            self._send_gathered()

    def _send_gathered(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, bytearray()
            self._send_now((gathered,))

    def _serve_frames(self) -> None:
        view = self._view
        if view is None:
            return
        while True:
            start = self._read_start
            ready = self._read_end - start
            if ready < 4:
                break
            if self._write_paused or (self._waiting and not self._may_start()):
                if self.on_next is not None and ready >= _SIZE_AND_API.size:
                    self.on_next(_SIZE_AND_API.unpack_from(view, start)[1])
                break
            size: int = _SIZE.unpack_from(view, start)[0]
            if size < 0 or size > self._limits.frame_bytes_max:
                begin = bytes(view[start : start + 4])
                self.refuse(
                    f"frame of {size} bytes, allowed are 0 to {self._limits.frame_bytes_max}"
                    + _spoken(begin)
                )
                return
            end = start + 4 + size
            if end <= self._read_end:
                self._read_start = end
                if not self._serve(view[start + 4 : end]):
                    return  # the connection is closed, and the buffer lent to another one
            elif size + 4 > len(view):
                self._begin_large(size, view[start + 4 : self._read_end])
                return
            else:
                if start:
                    self._compact()
                break
        if self._read_start == self._read_end:
            self._release_buffer()
        elif self._read_end - self._read_start == len(view):
            self.stream.pause()  # full of requests that may not start yet

    def _begin_large(self, size: int, beginning: memoryview) -> None:
        if not self._server.reserve(size, self):
            return  # reading stops here until other connections have given room back
        # Memory is taken as it is filled; a peer that only announces a large frame costs nothing.
        self._large = memoryview(_core.unfilled(size))
        self._large_filled = len(beginning)
        self._large[: len(beginning)] = beginning
        self._release_buffer()

    def on_room(self) -> None:
        """There is room again for a large frame that had to wait."""
        if self.gone:
            self._server.release(0)  # for the next one that waits
            return
        self.stream.resume()
        self._serve_buffered()

    def is_mid_frame(self) -> bool:
        """Whether the peer owes us the rest of a frame."""
        if self._write_paused:
            return False
        return self._large is not None or (self._read_end > self._read_start and not self._waiting)

    # Answers out

    def _serve(self, frame: memoryview) -> bool:
        """Serves one frame; False if the connection has ended or must not go on."""
        try:
            answer = self._dispatch(self, frame)
        except CloseConnection as refusal:
            self.refuse(str(refusal))
            return False
        if isinstance(answer, PendingResponse):
            if answer.parts is None:
                answer.attach(self)
                self._waiting.append(answer)
                return True
            answer = answer.parts
        if self._waiting:
            done = PendingResponse()
            done.parts = answer
            self._waiting.append(done)
        elif answer:
            self._send(answer)
        return not self.gone

    def _send(self, answer: Answer) -> None:
        if not self._gathering:
            self._send_now(answer)
            return
        if len(answer) == 1 and not isinstance(answer[0], FileSlice):
            self._gathered += answer[0]
            if len(self._gathered) < _GATHER_BYTES_MAX:
                return
            answer = ()
        if self._gathered:
            answer = (self._gathered, *answer)
            self._gathered = bytearray()
        self._send_now(answer)

    def _send_now(self, answer: Answer) -> None:
        stream = self.stream
        stream.send(answer)
        if stream.queued_bytes() > self._limits.unsent_bytes_max:
            self._write_paused = True
            stream.pause()

    def on_answered(self) -> None:
        """Some answer has come: sends all that stand first in line, then goes on serving."""
        if self.gone:
            return
        waiting = self._waiting
        while waiting:
            parts = waiting[0].parts
            if parts is None:
                return
            waiting.popleft()
            if parts:
                self._send(parts)
        self.active_at = self._server.now()
        if not self._write_paused:
            self._go_on()
        if self._ended:
            self._close_when_served()

    def _go_on(self) -> None:
        """Serves what came while nothing could start, and reads again."""
        if self._large is not None and self._large_filled == len(self._large):
            self._serve_large()
        elif self._large is None and self._read_end:
            self.stream.resume()
            self._serve_buffered()
        elif not self._ended:
            self.stream.resume()

    def drained(self) -> None:
        if self._write_paused:
            self._write_paused = False
            if self._may_start():
                self._go_on()
        if self._ended:
            self._close_when_served()

    # Ending

    def ended(self) -> None:
        if self._read_start == self._read_end:
            self._release_buffer()
        self._ended = True
        self._close_when_served()

    def _close_when_served(self) -> None:
        if not self._waiting and not self._write_paused and not self.gone:
            self.stream.close()

    def close_if_quiet(self) -> bool:
        """For a graceful stop: ends the connection unless an answer is owed."""
        if self._waiting or self.stream.queued_bytes():
            self._ended = True
            return False
        self.stream.close()
        return True

    def refuse(self, reason: str) -> None:
        self._server.log_refusal(self, reason)
        self._send_gathered()  # the requests before the bad one were good
        self.stream.abort()

    def closed(self, error: OSError | None) -> None:
        self.gone = True
        if self._large is not None:
            self._server.release(len(self._large))
            self._large = None
        self._release_buffer()
        for later in self._waiting:
            close_slices(later.parts or ())
        self._waiting.clear()
        self._server.forget(self)
        for callback in tuple(self.on_gone):
            callback()
        self.on_gone.clear()
        self.on_next = None


def _spoken(begin: bytes) -> str:
    """What a peer seems to speak that does not speak Kafka's protocol in the clear."""
    if begin in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"PRI "):
        return "; the peer speaks HTTP"
    if begin[:2] == b"\x16\x03":
        return "; the peer speaks TLS"
    return ""
