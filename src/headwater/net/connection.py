"""A server connection: splits the stream into frames, dispatches them, sends responses in order.

The first stop of every journey. A frame is a view into the receive buffer and is valid only until
the dispatcher returns; whatever a request needs later must have been decoded by then. Requests of a
connection are served one after the other, as in Kafka: the next one starts when the one before has
been answered. Only requests that the dispatcher marks as `overlapping` (produce, whose work is done
before it waits) may start while others of their kind still wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING

from headwater import _core
from headwater.io import FileSlice, Receiver, Stream, close_slices
from headwater.io.buffers import RECEIVE_BUFFERS
from headwater.net.limits import NetLimits
from headwater.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.net.server import Server

Answer = Sequence["Buffer | FileSlice"]
"""The bytes of a response, including the size field, ready to be sent."""

_SIZE = Struct(">i")
_SIZE_AND_API = Struct(">ih")
_OVERLAP_MAX = 64
_GATHER_BYTES_MAX = 64 * 1024
# Reasons to start no request. Too many responses are unread, and the peer must read them first; or
# the peer has exceeded a quota, and must wait.
_UNREAD = 1
_THROTTLED = 2
_TURN_SECONDS = 0.002  # then other connections are served before the next request of this one


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
    """The connection must be closed, for instance after an invalid frame; the text is logged."""


Dispatch = Callable[["Connection", memoryview], "Answer | PendingResponse"]
"""Serves one frame; an empty answer means that the peer expects no response.

May raise `CloseConnection`."""


class Connection(Receiver):
    __slots__ = (
        "_dispatch",
        "_ended",
        "_gathered",
        "_gathering",
        "_holds",
        "_large",
        "_large_filled",
        "_limits",
        "_read_end",
        "_read_start",
        "_server",
        "_view",
        "_waiting",
        "active_at",
        "frame_since",
        "gone",
        "granted",
        "listener",
        "on_gone",
        "on_next",
        "on_sent",
        "principal",
        "software",
        "stream",
        "telemetry_id",
    )

    def __init__(self, stream: Stream, listener: str, server: Server, dispatch: Dispatch) -> None:
        self.stream = stream
        self.listener = listener
        self.principal = ANONYMOUS  # until the peer has authenticated
        # Name and version of the client's library, if it has told (KIP-511).
        self.software = ("unknown", "unknown")
        self.telemetry_id: bytes | None = None  # of the client instance that pushes metrics here
        self.granted: object | None = None  # what `broker/authorization` has allowed to this client
        self.active_at = server.now()
        self.frame_since: float | None = None  # when the frame began that is being received
        self.gone = False
        self.on_gone: dict[
            Callable[[], None], None
        ] = {}  # ordered, so that the simulator is deterministic
        # Set by a waiting request; called with the API key of the next request in line.
        self.on_next: Callable[[int], None] | None = None
        # Called with the time that the next send takes, if anybody counts it.
        self.on_sent: Callable[[float], None] | None = None
        self._server = server
        self._limits: NetLimits = server.limits
        self._dispatch = dispatch
        self._view: memoryview | None = None  # borrowed while it holds unserved bytes
        self._read_start = 0  # first unserved byte
        self._read_end = 0  # first free byte
        self._large: memoryview | None = None  # a frame that does not fit into the buffer
        self._large_filled = 0
        self._waiting: deque[PendingResponse] = deque()
        self._ended = False
        self._holds = 0  # why no request starts now: _UNREAD, _THROTTLED
        self._gathering = False
        self._gathered = bytearray()

    # Authentication

    @property
    def dispatch(self) -> Dispatch:
        return self._dispatch

    def serve_by(self, dispatch: Dispatch, *, frame_bytes_max: int | None = None) -> None:
        """Has the next frames served by another dispatch. `frame_bytes_max` bounds them until this
        is called again."""
        self._dispatch = dispatch
        limits = self._server.limits
        if frame_bytes_max is not None:
            limits = replace(limits, frame_bytes_max=min(frame_bytes_max, limits.frame_bytes_max))
        self._limits = limits

    def must_prove(self) -> None:
        """Begins the deadline again, for another authentication."""
        self._server.unproven[self] = self._server.now()

    def proven(self) -> None:
        """Ends the deadline of a connection that had to authenticate."""
        self._server.unproven.pop(self, None)
        self._server.counts_of(self.listener).authenticated += 1

    def dismiss(self, parts: Answer, *, after_seconds: float) -> PendingResponse:
        """Sends a last response to a peer that could not authenticate, after a while, and closes
        the connection; nothing else is read."""
        self._server.counts_of(self.listener).failed_authentications += 1

        def end() -> None:
            if not self.gone:
                self._send_now(parts)
                self.stream.close()

        self.stream.pause()
        self._server.later(after_seconds, end)
        return PendingResponse()  # never answered, so that no other request starts

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
        """Returns the receive buffer to the pool; its bytes are served or will not be."""
        self._read_start = self._read_end = 0
        self.frame_since = None
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
        """Returns whether the next request may start now."""
        if self._holds:
            return False
        waiting = self._waiting
        if not waiting:
            return True
        return waiting[-1].overlapping and len(waiting) < _OVERLAP_MAX

    def _serve_large(self) -> None:
        frame = self._large
        assert frame is not None
        self._large = None
        self._server.release(len(frame), self)
        if self._serve(frame) and not self._holds:
            self.stream.resume()
            self._serve_buffered()

    def _serve_buffered(self) -> None:
        """Serves every complete frame in the buffer, as long as requests may start. Responses that
        are ready at once are sent together: one send for a pipelining peer, not one per request."""
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
        turn_ends = self.active_at + _TURN_SECONDS
        first = self._read_start
        while True:
            start = self._read_start
            ready = self._read_end - start
            if ready < 4:
                break
            if self._holds or (self._waiting and not self._may_start()):
                if self.on_next is not None and ready >= _SIZE_AND_API.size:
                    self.on_next(_SIZE_AND_API.unpack_from(view, start)[1])
                break
            size: int = _SIZE.unpack_from(view, start)[0]
            if size < 0 or size > self._limits.frame_bytes_max:
                begin = bytes(view[start : start + 4])
                self.refuse(
                    f"invalid frame size {size}: expected 0 to {self._limits.frame_bytes_max}"
                    + _spoken(begin)
                )
                return
            end = start + 4 + size
            if end <= self._read_end:
                self._read_start = end
                if not self._serve(view[start + 4 : end]):
                    return  # closed; the buffer may already belong to another connection
                if self._read_end - end >= 4 and self._server.now() > turn_ends:
                    self._take_turns()
                    return
            elif size + 4 > len(view):
                self._begin_large(size, view[start + 4 : self._read_end])
                return
            else:
                if start:
                    self._compact()
                break
        if self._read_start == self._read_end:
            self._release_buffer()
            return
        if start != first or self.frame_since is None:
            self.frame_since = self.active_at
        if self._read_end - self._read_start == len(view):
            self.stream.pause()  # the buffer is full of requests that may not start yet

    def _take_turns(self) -> None:
        """Leaves the remaining requests for the next turn of the loop. A buffer has room for a
        thousand small requests, which may take seconds."""
        self.frame_since = None
        self.stream.pause()
        self._server.soon(self._on_turn)

    def _on_turn(self) -> None:
        if not self.gone and self._may_start():
            self.active_at = self._server.now()
            self._go_on()

    def _begin_large(self, size: int, beginning: memoryview) -> None:
        if not self._server.reserve(size, self):
            return  # paused until other connections have released memory
        # The kernel provides the pages as they are filled: a peer that only announces a large
        # frame costs nothing.
        self._large = memoryview(_core.unfilled(size))
        self._large_filled = len(beginning)
        self._large[: len(beginning)] = beginning
        self._release_buffer()
        self.frame_since = self._server.now()  # it may have waited for memory until now

    def on_memory(self) -> None:
        """Continues with a large frame that had to wait for memory."""
        if self._holds:  # it comes again when nothing holds it back
            self._server.stop_waiting(self)
            return
        self.active_at = self._server.now()  # it could not be while it was paused
        self.stream.resume()
        self._serve_buffered()

    def is_mid_frame(self) -> bool:
        """Returns whether part of a frame has arrived and the rest is missing."""
        if self._holds:
            return False
        return self._large is not None or (self._read_end > self._read_start and not self._waiting)

    def frame_bytes(self) -> int:
        """Returns the size of the frame that is being received, as far as it is known."""
        if self._large is not None:
            return len(self._large)
        view = self._view
        if view is None or self._read_end - self._read_start < _SIZE.size:
            return 0
        return int(_SIZE.unpack_from(view, self._read_start)[0])

    # Answers out

    def _serve(self, frame: memoryview) -> bool:
        """Serves one frame; returns False if the connection was closed."""
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
        stream, on_sent = self.stream, self.on_sent
        if on_sent is None:
            stream.send(answer)
        else:
            self.on_sent = None
            began = self._server.now()
            stream.send(answer)
            on_sent(self._server.now() - began)
        if stream.queued_bytes() > self._limits.unsent_bytes_max:
            self._holds |= _UNREAD
            stream.pause()

    def on_answered(self) -> None:
        """Sends the responses that are ready and next in order, then serves more requests."""
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
        if self._read_end or self._large is not None:
            # Not here: this may be called while another connection's request is being served.
            self._server.soon(self._after_answer)
        else:
            self._after_answer()

    def _after_answer(self) -> None:
        if self.gone:
            return
        if self._may_start():
            self._go_on()
        if self._ended:
            self._close_when_served()

    def _go_on(self) -> None:
        """Serves the requests that arrived while none could start, and resumes reading."""
        if self._large is None:
            self.frame_since = None  # the peer could not send the rest of it
        if self._large is not None and self._large_filled == len(self._large):
            self._serve_large()
        elif self._large is None and self._read_end:
            self.stream.resume()
            self._serve_buffered()
        elif not self._ended:
            self.stream.resume()

    def drained(self) -> None:
        if self._holds & _UNREAD:
            self._holds &= ~_UNREAD
            if self._may_start():
                self._go_on()
        if self._ended:
            self._close_when_served()

    # Throttling

    def throttle(self, seconds: float) -> None:
        """Reads and serves nothing more of this peer for a while. Responses go out."""
        if self.gone:
            return
        self._holds |= _THROTTLED
        self.stream.pause()
        self._server.throttle(self, seconds)

    def unthrottle(self) -> None:
        """Goes on with a peer that had to wait."""
        if self.gone or not self._holds & _THROTTLED:
            return
        self._holds &= ~_THROTTLED
        self.active_at = self._server.now()
        if self.frame_since is not None:
            self.frame_since = self.active_at  # it could not send the rest of it
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
        if not self._waiting and not self._holds and not self.gone:
            self.stream.close()

    def close_if_quiet(self) -> bool:
        """Closes the connection unless a response is pending; for a graceful stop."""
        if self._waiting or self.stream.queued_bytes():
            self._ended = True
            return False
        self.stream.close()
        return True

    def refuse(self, reason: str) -> None:
        self._server.log_refusal(self, reason)
        self._send_gathered()  # responses to the valid requests before the bad one
        self.stream.abort()

    def closed(self, error: OSError | None) -> None:
        self.gone = True
        if self._large is not None:
            self._server.release(len(self._large), self)
            self._large = None
        self._release_buffer()
        for later in self._waiting:
            close_slices(later.parts or ())
        self._waiting.clear()
        self._server.forget(self)
        for callback in tuple(self.on_gone):
            callback()
        self.on_gone.clear()
        self.on_next = self.on_sent = None


def _spoken(begin: bytes) -> str:
    """Names the protocol that a peer seems to speak instead of Kafka's, for the log."""
    if begin in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"PRI "):
        return "; the peer speaks HTTP"
    if begin[:2] == b"\x16\x03":
        return "; the peer speaks TLS"
    return ""
