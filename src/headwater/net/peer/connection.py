"""A connection to one broker or controller: requests out, responses in, in request order.

Responses arrive by callback where speed matters (`post`) and by `await` elsewhere (`ask`). Each
frame has its own buffer, so records that a response refers to live as long as the response. Every
request completes exactly once, with its response or with an error.

Errors are `PeerError`s. A caller with errors of its own gives `as_error`, which converts them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar, cast

from headwater import _core
from headwater.io import Address, Clock, Stream
from headwater.io.buffers import RECEIVE_BUFFERS
from headwater.net.peer.errors import (
    ClosedAtFirstRequest,
    ClosedBeforeVersions,
    Disconnected,
    NotKafka,
    PeerError,
    TimedOut,
    UnsupportedVersion,
)
from headwater.observability.measures import Traffic
from headwater.protocol import DecodeError, EncodeError, Message, decode, encode_parts
from headwater.protocol.apis import APIS, Api, ApiKey, Versions, response_class
from headwater.protocol.frame import read_response_header, request_prefix

E = TypeVar("E", bound=Exception)
Done = Callable[[Any, E | None], None]

FRAME_BYTES_MAX = 256 * 1024 * 1024
# The first response lists API versions; anything longer does not come from Kafka.
_FIRST_FRAME_BYTES_MAX = 1024 * 1024
_CORRELATION_MAX = 2**31 - 1
_SIZE = Struct(">i")
_SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_UNSUPPORTED = b"\x00\x23"  # UNSUPPORTED_VERSION, at the place of the error code in ApiVersions


def as_is(error: PeerError) -> PeerError:
    """The `as_error` of a caller that has no errors of its own."""
    return error


class Prepared(Protocol):
    """A request that is sent repeatedly and differs only in its records."""

    @property
    def api(self) -> Api: ...

    @property
    def version(self) -> int: ...

    def frame(self, correlation_id: int, records: memoryview) -> bytes:
        """Returns the whole request, beginning with its size."""

    def read(self, frame: bytes) -> Any | None:
        """Decodes the usual response; None leaves the frame to the general decoder."""


class _Pending(Generic[E]):
    __slots__ = ("api", "correlation_id", "deadline", "done", "read", "version")

    def __init__(
        self,
        api: Api,
        version: int,
        correlation_id: int,
        deadline: float,
        done: Done[E],
        read: Callable[[bytes], Any | None] | None = None,
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.deadline = deadline
        self.done = done
        self.read = read


class PeerConnection(Generic[E]):
    """The receiver of a stream. Made by `connect`; usable once that has returned."""

    def __init__(
        self,
        stream: Stream,
        *,
        node_id: int,
        address: Address,
        clock: Clock,
        client_id: str,
        request_timeout_ms: int,
        traffic: Traffic | None = None,
    ) -> None:
        self.node_id = node_id
        self.address = address
        self.is_open = True
        self.versions: dict[int, Versions] = {}
        self.features: dict[str, int] = {}  # finalized levels, by name
        self.supported_features: dict[str, tuple[int, int]] = {}
        self.active_at = clock.monotonic()
        self.trusted_until = inf  # end of the authenticated session (KIP-368)
        self.throttled_until = (
            0.0  # as the broker asks (KIP-219); callers of `post` must respect it
        )
        self.renewal: asyncio.Task[None] | None = None  # of the login
        self.on_closed: Callable[[PeerConnection[E]], None] | None = None
        # Set by `connect` at the end of the handshake, which itself deals in `PeerError`s.
        self.as_error: Callable[[PeerError], E] = cast(Any, as_is)
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._now = clock.monotonic
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._traffic = traffic if traffic is not None else Traffic()
        self._correlation_id = 0
        self._pending: deque[_Pending[E]] = deque()
        # Requests without a response are complete when the kernel has taken this many bytes.
        self._unwritten: deque[tuple[int, Done[E]]] = deque()
        self._posted_bytes = 0  # by `post`
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0.0
        self._is_first = True
        self._has_served = False  # a response other than ApiVersions
        self._failure: PeerError | None = None
        # Requests that wait for the end of an authentication, with what `post` was called with.
        self._held: list[Callable[[], None]] | None = None
        self.fault: OSError | None = None  # the system error that ended the connection
        self._view: memoryview | None = None  # borrowed while it holds unread bytes
        self._start = 0  # first unread byte
        self._end = 0  # first free byte
        self._large: memoryview | None = None  # a frame that does not fit into the buffer
        self._large_filled = 0

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<PeerConnection to node {self.node_id} at {self.address}, {state}>"

    @property
    def client_id(self) -> str:
        return self._client_id

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def queued_bytes(self) -> int:
        """The number of bytes that the kernel has not taken yet."""
        return self._stream.queued_bytes()

    def version(self, api: int, *, at_most: int | None = None) -> int | None:
        """Returns the newest version of an API that both ends support, or None."""
        ours, theirs = APIS[api].versions, self.versions.get(api)
        if ours is None or theirs is None:
            return None
        newest = min(ours[1], theirs[1])
        if at_most is not None and at_most < newest:
            newest = at_most
        return newest if newest >= max(ours[0], theirs[0]) else None

    def put_first(self) -> None:
        """Has the loop serve this peer before clients, as another node of the cluster."""
        self._stream.put_first()

    # Requests out

    def post(
        self,
        request: Message,
        version: int,
        done: Done[E],
        *,
        timeout_ms: int,
        is_answered: bool = True,
    ) -> None:
        """Sends a request at once. `done` is called once, with the response or an error; for a
        request without a response it is called with neither, when the kernel has taken all of it.

        Never raises network errors. `done` may be called before this returns, if the connection is
        already closed or the version cannot carry the request.
        """
        if not self.is_open:
            error = self._failure or self._disconnected("the connection is closed")
            done(None, self.as_error(type(error)(str(error))))
            return
        key = type(request).API
        assert key is not None, f"{type(request).__name__} is not a request"
        if self._held is not None and key not in _SASL:
            post = partial(self.post, timeout_ms=timeout_ms, is_answered=is_answered)
            self._held.append(partial(post, request, version, done))
            return
        api = APIS[key]
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_MAX
        prefix = request_prefix(api, version, correlation_id, self._client_id)
        try:
            parts: list[Any] = encode_parts(request, version, prefix)
        except EncodeError as error:
            refusal = UnsupportedVersion(f"{self._who()} does not support this request: {error}")
            done(None, self.as_error(refusal))
            return
        size = sum(map(len, parts)) - _SIZE.size if len(parts) > 1 else len(parts[0]) - _SIZE.size
        _SIZE.pack_into(parts[0], 0, size)
        self._traffic.requests += 1
        self._traffic.bytes_out += size + _SIZE.size
        self._posted_bytes += size + _SIZE.size
        if is_answered:
            deadline = self._now() + timeout_ms / 1000
            self._pending.append(_Pending(api, version, correlation_id, deadline, done))
            self._watch(deadline)
        else:
            self.active_at = self._now()  # no response will show that the peer is alive
            self._unwritten.append((self._posted_bytes, done))
        self._stream.send(parts)
        if not is_answered:
            # After the notice of a stream that failed in `send`, whose queue is empty as well.
            self._loop.call_soon(self._note_written)

    def hold(self) -> None:
        """Lets nothing but SASL pass until `let_go`: a server in the middle of an authentication
        refuses everything else."""
        self._held = []

    def let_go(self) -> None:
        held, self._held = self._held or [], None
        for post in held:
            post()

    def _note_written(self) -> bool:
        """Completes requests that the kernel has taken; returns whether there were any."""
        unwritten, written = self._unwritten, self._posted_bytes - self._stream.queued_bytes()
        told = False
        while self.is_open and unwritten and unwritten[0][0] <= written:
            unwritten.popleft()[1](None, None)
            told = True
        return told

    def post_prepared(
        self, prepared: Prepared, records: memoryview, done: Done[E], *, timeout_ms: int
    ) -> None:
        """Like `post`, on an open connection; `done` may get the result of `prepared.read`."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_MAX
        deadline = self._now() + timeout_ms / 1000
        self._pending.append(
            _Pending(prepared.api, prepared.version, correlation_id, deadline, done, prepared.read)
        )
        if self._timer is None or deadline < self._timer_deadline:
            self._watch(deadline)
        frame = prepared.frame(correlation_id, records)
        self._traffic.requests += 1
        self._traffic.bytes_out += len(frame)
        if len(self._pending) == 1:
            self._stream.expect()
        self._stream.send((frame,))

    async def ask(
        self, request: Message, *, at_most: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Returns the response to a request in the newest common version up to `at_most`."""
        key = type(request).API
        assert key is not None, f"{type(request).__name__} is not a request"
        version = self.version(key, at_most=at_most)
        if version is None:
            raise self.as_error(
                UnsupportedVersion(
                    f"{self._who()} does not support {APIS[key].name} in a known version"
                    + (f" up to {at_most}" if at_most is not None else "")
                )
            )
        return await self.exchange(request, version, timeout_ms or self._request_timeout_ms)

    async def exchange(self, request: Message, version: int, timeout_ms: int) -> Any:
        """Returns the response to a request in exactly this version."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        done = partial(self._deliver, answer, self._now())
        self.post(request, version, done, timeout_ms=timeout_ms)
        del done
        try:
            return await answer
        finally:
            # An exception that is raised here keeps this frame. The frame must not keep the
            # exception, or only the collector could free them and what they refer to.
            del answer

    def _deliver(
        self, answer: asyncio.Future[Any], began: float, message: Any, error: E | None
    ) -> None:
        if answer.done():  # the wait was cancelled
            return
        if error is not None:
            answer.set_exception(error)
        else:
            now = self._now()
            self._traffic.answered(self.node_id, now - began, now)
            answer.set_result(message)

    # Timeouts: one timer for all requests in flight

    def _watch(self, deadline: float) -> None:
        timer = self._timer
        if timer is not None:
            if self._timer_deadline <= deadline:
                return
            timer.cancel()
        self._timer_deadline = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._now()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        # If the loop was blocked for long, responses may be waiting in the socket.
        while self.is_open and self._pending and self._stream.turn(0):
            pass
        self._expire()
        if self.is_open and self._pending:
            self._watch(min(each.deadline for each in self._pending))

    def _expire(self) -> None:
        """Closes the connection if a response is overdue: those after it cannot arrive first."""
        now = self._now()
        late = [each for each in self._pending if each.deadline <= now]
        if not late:
            return
        first = late[0]
        reason = f"{self._who()} did not answer {first.api.name} in time"
        for each in late:
            self._pending.remove(each)
        self._close(self._disconnected(f"it did not answer {first.api.name} in time"))
        for each in late:
            each.done(None, self.as_error(TimedOut(reason)))

    def pump(self, seconds: float) -> bool:
        """Does the work of the loop for this connection, waiting up to `seconds` for an event;
        returns whether there was one. For callers that cannot await: callbacks run inside it."""
        is_written = bool(self._unwritten) and not self._stream.queued_bytes()
        did = self._stream.turn(0.0 if is_written else seconds)
        did |= self._note_written()
        if not did:
            self._expire()
        return did

    # Responses in

    def buffer(self) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        view = self._view
        if view is None:
            view = self._view = RECEIVE_BUFFERS.take()
        elif self._end == len(view):
            left = self._end - self._start
            view[:left] = view[self._start : self._end]
            self._start = 0
            self._end = left
        return view[self._end :]

    def _release_buffer(self) -> None:
        self._start = self._end = 0
        view, self._view = self._view, None
        if view is not None:
            RECEIVE_BUFFERS.give_back(view)

    def received(self, count: int) -> None:
        if not count:
            if self._start == self._end:
                self._release_buffer()
            return
        self.active_at = self._now()
        self._traffic.bytes_in += count
        if self._large is None:
            self._end += count
            self._read_frames()
            return
        self._large_filled += count
        if self._large_filled == len(self._large):
            frame, self._large = self._large, None
            self._answer(frame)

    def _read_frames(self) -> None:
        # A callback may pump this connection, which reads the frames that follow: whatever it
        # can change is looked up again for each frame.
        while self.is_open and self._view is not None:
            view, start = self._view, self._start
            if self._end - start < _SIZE.size:
                break
            size: int = _SIZE.unpack_from(view, start)[0]
            if not _SIZE.size <= size <= _FIRST_FRAME_BYTES_MAX and not self._may_be(size):
                return
            end = start + _SIZE.size + size
            if end <= self._end:
                self._start = end
                frame = bytes(view[start + _SIZE.size : end])
                if not self._answer_quickly(frame):
                    self._answer(memoryview(frame))
            elif size + _SIZE.size > len(view):
                self._begin_large(size, view[start + _SIZE.size : self._end])
                return
            else:
                break
        if self._start == self._end:
            self._release_buffer()

    def _begin_large(self, size: int, beginning: memoryview) -> None:
        self._large = memoryview(_core.unfilled(size))  # passed on only when it is complete
        self._large[: len(beginning)] = beginning
        self._large_filled = len(beginning)
        self._release_buffer()

    def _may_be(self, size: int) -> bool:
        """Checks the size of a frame; closes the connection if it is invalid."""
        most = _FIRST_FRAME_BYTES_MAX if self._is_first else FRAME_BYTES_MAX
        if _SIZE.size <= size <= most:
            return True
        if self._is_first:
            assert self._view is not None
            self._close(self._not_kafka(bytes(self._view[self._start : self._end])))
        else:
            self._close(
                self._disconnected(
                    f"it sent a frame of {size} bytes, more than the maximum of {most}"
                )
            )
        return False

    def _not_kafka(self, start: bytes) -> NotKafka:
        if start.startswith(
            (b"HTTP", b"<")
        ):  # some servers answer invalid requests with a bare page
            what = "HTTP"
        elif start[:2] in (b"\x15\x03", b"\x16\x03"):
            what = "TLS"
        elif start.startswith(b"SSH-"):
            what = "SSH"
        else:
            what = "an unknown protocol"
        return NotKafka(f"{self.address} speaks {what}, not Kafka's protocol")

    def _answer_quickly(self, frame: bytes) -> bool:
        """Completes a prepared request; returns whether the frame was its usual response."""
        pending = self._pending[0] if self._pending else None
        if pending is None or pending.read is None:
            return False
        if _SIZE.unpack_from(frame)[0] != pending.correlation_id:
            return False
        answer = pending.read(frame)
        if answer is None:
            return False
        self._pending.popleft()
        pending.done(answer, None)
        return True

    def _answer(self, frame: memoryview) -> None:
        self._is_first = False
        if not self._pending:
            self._close(self._disconnected("it sent a response that was not requested"))
            return
        pending = self._pending[0]
        api, version = pending.api, pending.version
        if api.key == ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED:
            version = 0  # a broker answers an unknown version of ApiVersions in version 0
        try:
            correlation_id, position = read_response_header(api, version, frame)
            if correlation_id != pending.correlation_id:
                raise DecodeError(
                    f"correlation id {correlation_id}, expected {pending.correlation_id}"
                )
            message: Any = decode(response_class(api.key), frame, version, position)
        except DecodeError as error:
            if not self.versions:
                self._close(self._not_kafka(b""))
            else:
                self._close(self._disconnected(f"invalid response to {api.name}: {error}"))
            return
        self._pending.popleft()
        self._has_served = self._has_served or bool(self.versions)
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until = max(self.throttled_until, self._now() + throttle_ms / 1000)
        pending.done(message, None)

    # Ending

    def drained(self) -> None:
        if self._unwritten:
            self._loop.call_soon(self._note_written)

    def ended(self) -> None:
        if self._has_served:
            self._close(self._disconnected("it closed the connection"))
        elif self.versions:
            self._close(
                ClosedAtFirstRequest(
                    f"{self._who()}: it closed the connection at the first request after the "
                    "handshake"
                )
            )
        else:
            self._close(
                ClosedBeforeVersions(
                    f"{self._who()}: it closed the connection at the first request"
                )
            )

    def closed(self, error: OSError | None) -> None:
        self.fault = error
        self._release_buffer()
        self._large = None
        reason = "it is closed" if error is None else (error.strerror or str(error)).lower()
        self._close(self._disconnected(reason))

    def give_up(self, reason: str) -> None:
        self._close(self._disconnected(reason))

    def close(self) -> None:
        """Closes the connection; requests in flight fail with `Disconnected`."""
        self._close(self._disconnected("the connection was closed locally"))

    def _who(self) -> str:
        return str(self.address) if self.node_id < 0 else f"node {self.node_id} at {self.address}"

    def _disconnected(self, reason: str) -> Disconnected:
        return Disconnected(f"{self._who()}: {reason}")

    def _close(self, error: PeerError) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._failure = error
        self._stream.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [each.done for each in self._pending]
        waiting += [done for _, done in self._unwritten]
        self._pending.clear()
        self._unwritten.clear()
        if self.on_closed is not None:
            self.on_closed(self)
        self.let_go()  # `post` fails them
        for done in waiting:
            # Each waiter raises its own: a shared exception would gather all their tracebacks.
            done(None, self.as_error(type(error)(str(error))))
