"""A small HTTP server for metrics, health and tables: GET and HEAD, one request of a connection at
a time.

It serves machines that scrape and probe, and trusts nobody: the head of a request, the number of
connections, the time for a request and the time for its answer are bounded, and a body is refused.
A long answer is sent in parts; between two parts the event loop serves others, and an answer that
its reader does not take waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

from headwater.io import Address, Host, Listener, Receiver, Stream

PLAIN = "text/plain; charset=utf-8"

_HEAD_END = b"\r\n\r\n"
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    head_bytes_max: int = 8192
    headers_max: int = 64
    connections_max: int = 64
    long_answers_max: int = 4  # that are sent in parts at the same time
    head_seconds: float = 10.0  # from the first byte of a request to the end of its head
    idle_seconds: float = 300.0  # between two requests
    answer_seconds: float = 60.0  # for the reader to take an answer
    unsent_bytes_max: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str  # without the query
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    is_1_0: bool = False
    query: str = ""  # as it came, without the question mark

    @property
    def keeps_alive(self) -> bool:
        wish = self.headers.get("connection", "").lower()
        return "close" not in wish and not self.is_1_0


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    body: str | Iterator[str]  # an iterator is read in parts, each of which takes little time
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN


class BadRequest(Exception):
    """The peer sent a request that is not served; the text says why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def parse_head(head: bytes, limits: HttpLimits) -> HttpRequest:
    """Returns the request of a head without its last empty line. Raises BadRequest."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "expected METHOD PATH HTTP/1.1")
    method, target, version = words
    if len(lines) > limits.headers_max:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or not _TOKEN.issuperset(name):
            raise BadRequest(HTTPStatus.BAD_REQUEST, "malformed header")
        key = name.decode("ascii").lower()
        text = value.strip(b" \t").decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "expected no body")
    if method not in (b"GET", b"HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET or HEAD")
    if not target.startswith(b"/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "expected a path")
    path, _, query = target.decode("latin-1").partition("?")
    return HttpRequest(method.decode(), path, headers, version == b"HTTP/1.0", query)


Serve = Callable[[HttpRequest], HttpAnswer | Awaitable[HttpAnswer]]


class HttpServer:
    """Answers the requests to one address."""

    def __init__(self, host: Host, serve: Serve, limits: HttpLimits | None = None) -> None:
        self.serve = serve
        self.limits = limits or HttpLimits()
        self.long_answers = 0
        self._host = host
        self._connections: dict[_Connection, None] = {}
        self._listener: Listener | None = None

    def start(self, host: str, port: int) -> Address:
        """Listens; returns the address. Raises OSError, with the address, if that fails."""
        listener = self._listener = self._host.network.bind(host, port, self._accept)
        listener.start()
        return listener.address

    def _accept(self, stream: Stream) -> Receiver:
        connection = _Connection(stream, self)
        self._connections[connection] = None
        if len(self._connections) > self.limits.connections_max:
            asyncio.get_running_loop().call_soon(stream.abort)
        return connection

    def forget(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)

    def stop(self) -> list[asyncio.Task[None]]:
        """Ends everything at once; returns the tasks that are still ending."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        ending = [task for each in self._connections if (task := each.answering) is not None]
        for task in ending:
            task.cancel()
        for connection in list(self._connections):
            connection.stream.abort()
        return ending


class _Connection(Receiver):
    __slots__ = (
        "_buffer",
        "_deadline",
        "_drained",
        "_ended",
        "_filled",
        "_server",
        "answering",
        "stream",
    )

    def __init__(self, stream: Stream, server: HttpServer) -> None:
        self.stream = stream
        self.answering: asyncio.Task[None] | None = None
        self._server = server
        self._buffer = bytearray(server.limits.head_bytes_max)
        self._filled = 0
        self._ended = False
        self._drained: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._expect_within(server.limits.head_seconds)

    def _expect_within(self, seconds: float) -> None:
        """Closes the connection if what is expected takes longer."""
        self._forget_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.stream.abort)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # Requests in

    def buffer(self) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def received(self, count: int) -> None:
        if not count:
            return
        limits = self._server.limits
        if not self._filled:
            self._expect_within(limits.head_seconds)
        self._filled += count
        self._take_request()

    def _take_request(self) -> None:
        """Answers the request at the beginning of the buffer, if it is complete."""
        limits = self._server.limits
        end = self._buffer.find(_HEAD_END, 0, self._filled)
        if end < 0:
            if self._filled == len(self._buffer):
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse(BadRequest(status, f"expected at most {limits.head_bytes_max} bytes"))
            return
        head = bytes(self._buffer[:end])
        after = end + len(_HEAD_END)
        rest = self._filled - after
        self._buffer[:rest] = self._buffer[after : self._filled]
        self._filled = rest
        self.stream.pause()  # one request at a time
        self._expect_within(limits.answer_seconds)
        try:
            request = parse_head(head, limits)
        except BadRequest as refusal:
            self._refuse(refusal)
            return
        answer = self._server.serve(request)
        if isinstance(answer, HttpAnswer):
            self._answer(request, answer)
        else:
            self.answering = asyncio.ensure_future(self._await(request, answer))
            self.answering.add_done_callback(self._awaited)

    async def _await(self, request: HttpRequest, answer: Awaitable[HttpAnswer]) -> None:
        found = await answer
        self.answering = None
        self._answer(request, found)

    def _awaited(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.answering = None
        self.stream.abort()
        asyncio.get_running_loop().call_exception_handler(
            {"message": "an HTTP request failed", "exception": error}
        )

    def _refuse(self, refusal: BadRequest) -> None:
        request = HttpRequest("GET", "", {"connection": "close"})
        self._answer(request, HttpAnswer(f"{refusal}\n", refusal.status))

    # Answers out

    def _answer(self, request: HttpRequest, answer: HttpAnswer) -> None:
        if isinstance(answer.body, str) or request.method == "HEAD":
            body = answer.body.encode() if isinstance(answer.body, str) else None
            head = _head(request, answer, None if body is None else len(body))
            self.stream.send((head + (body or b"" if request.method != "HEAD" else b""),))
            self._answered(keeps_alive=request.keeps_alive)
            return
        if self._server.long_answers >= self._server.limits.long_answers_max:
            busy = HttpAnswer("too many long answers at once\n", HTTPStatus.SERVICE_UNAVAILABLE)
            self._answer(request, busy)
            return
        self._server.long_answers += 1
        self.answering = asyncio.ensure_future(self._send_parts(request, answer, answer.body))
        self.answering.add_done_callback(lambda task: self._sent(task, request))

    async def _send_parts(
        self, request: HttpRequest, answer: HttpAnswer, body: Iterator[str]
    ) -> None:
        is_chunked = not request.is_1_0
        self.stream.send((_head(request, answer, None),))
        for part in body:
            data = part.encode()
            if data:
                self.stream.send((_chunk(data) if is_chunked else data,))
            if self.stream.queued_bytes() > self._server.limits.unsent_bytes_max:
                self._drained = asyncio.get_running_loop().create_future()
                await self._drained
            await asyncio.sleep(0)  # others are served between two parts
        if is_chunked:
            self.stream.send((b"0\r\n\r\n",))

    def _sent(self, task: asyncio.Task[None], request: HttpRequest) -> None:
        self._server.long_answers -= 1
        self.answering = None
        if task.cancelled():
            self.stream.abort()
        elif (error := task.exception()) is not None:
            self.stream.abort()  # its reader sees that the answer is not complete
            asyncio.get_running_loop().call_exception_handler(
                {"message": "an answer to an HTTP request failed", "exception": error}
            )
        else:
            self._answered(keeps_alive=request.keeps_alive)

    def _answered(self, *, keeps_alive: bool) -> None:
        if not keeps_alive or self._ended:
            self.stream.close()  # when all is sent, within the deadline
            return
        self._expect_within(self._server.limits.idle_seconds)
        if self._filled:
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self.stream.resume()

    def _go_on(self) -> None:
        """Serves what came behind the request that was answered."""
        if self.answering is None and not self._ended:
            self.stream.resume()
            self._take_request()

    def drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def ended(self) -> None:
        self._ended = True
        if self.answering is None:
            self.stream.close()

    def closed(self, error: OSError | None) -> None:
        self._forget_deadline()
        if self.answering is not None:
            self.answering.cancel()
        self._server.forget(self)


def _head(request: HttpRequest, answer: HttpAnswer, size: int | None) -> bytes:
    status = answer.status
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {answer.content_type}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    ]
    if size is not None:
        lines.append(f"Content-Length: {size}")
    elif not request.is_1_0:
        lines.append("Transfer-Encoding: chunked")
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if not request.keeps_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
