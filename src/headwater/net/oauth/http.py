"""Single HTTP/1.1 requests to a token endpoint or for a JWKS, over the host's network.

One connection a request, bounded in size and time. Redirects are not followed: an address that is
allowed must not choose another one.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from headwater.io import Host, Receiver, Stream
from headwater.security.oauth import OAuthRefused
from headwater.security.stores import NEEDS_EXTRA, read_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

_READ_BYTES = 16 * 1024
_HEAD_END = b"\r\n\r\n"
_HEADS_BYTES_MAX = 64 * 1024  # of a response and the interim ones before it
_CHUNK_LINE_BYTES_MAX = 1024
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
BODY_BYTES_MAX = 1024 * 1024


class HttpFailed(Exception):
    """There was no response, or none that can be read. The text has no secrets."""


class Response(NamedTuple):
    status: int
    body: bytes


async def send(
    host: Host,
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
    connect_timeout_ms: int,
    read_timeout_ms: int,
) -> Response:
    """Sends a GET, or a POST with a body. An address with https needs a `context`. Raises
    HttpFailed."""
    at = urlsplit(url)
    name = at.hostname or ""
    where = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
    exchange = _Exchange()
    stream: Stream | None = None
    try:
        tls = None
        if at.scheme == "https":
            from headwater.io.tls import Tls

            assert context is not None
            tls = Tls(context, name)
        port = at.port or (443 if tls else 80)
        async with asyncio.timeout(connect_timeout_ms / 1000):
            stream = await host.network.connect(name, port, lambda _: exchange, tls)
        stream.send([_request(at.path or "/", at.query, at.netloc, body, headers or {})])
        async with asyncio.timeout(read_timeout_ms / 1000):
            return await exchange.response()
    except TimeoutError:
        what = "no connection" if stream is None else "no response"
        limit = connect_timeout_ms if stream is None else read_timeout_ms
        raise HttpFailed(f"{where}: {what} within {limit} ms") from None
    except (OSError, UnicodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HttpFailed(f"{where}: {reason.lower()}") from None
    finally:
        if stream is not None:
            stream.abort()


def endpoint_context(url: str, options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Returns the TLS context for an address with https: it trusts what the options of
    `sasl.jaas.config` name, or the certificates of the system. Raises OAuthRefused."""
    from headwater.io.tls import Trust, client_context, read_file

    path = options.get("ssl.truststore.location")
    if path is None:
        return client_context(Trust()) if urlsplit(url).scheme == "https" else None
    kind, password = (
        options.get("ssl.truststore.type", "PEM"),
        options.get("ssl.truststore.password"),
    )
    try:
        store = read_store(read_file(path), kind, password, None)
        return client_context(Trust(ca_pem=store.anchors()))
    except ImportError:
        raise OAuthRefused(f"ssl.truststore.location={path} {NEEDS_EXTRA}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OAuthRefused(f"ssl.truststore.location={path}: {reason.lower()}") from None


def _request(
    path: str, query: str, netloc: str, body: bytes | None, headers: Mapping[str, str]
) -> bytes:
    target = f"{path}?{query}" if query else path
    lines = [
        f"{'GET' if body is None else 'POST'} {target} HTTP/1.1",
        f"Host: {netloc.rpartition('@')[2]}",
        "Connection: close",
        "Accept: application/json",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of the request has a line break")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class _Exchange(Receiver):
    """Gathers the response until it is complete or the peer ends it."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(_READ_BYTES))
        self._reader = ResponseReader()
        self._done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    async def response(self) -> Response:
        return await self._done

    def buffer(self) -> memoryview:
        return self._view

    def received(self, count: int) -> None:
        self._read(self._view[:count], ended=False)

    def drained(self) -> None: ...

    def ended(self) -> None:
        self._read(b"", ended=True)

    def closed(self, error: OSError | None) -> None:
        if error is None:
            self._read(b"", ended=True)
        elif not self._done.done():
            self._done.set_exception(HttpFailed(f"the connection ended: {error.strerror or error}"))
            self._done.exception()  # nobody may be waiting yet

    def _read(self, data: Buffer, *, ended: bool) -> None:
        if self._done.done():
            return
        try:
            found = self._reader.read(data, ended=ended)
        except ValueError as error:
            self._done.set_exception(HttpFailed(str(error)))
            self._done.exception()
            return
        if found is not None:
            self._done.set_result(found)


class ResponseReader:
    """Reads a response piece by piece. Each byte is looked at once, so small pieces or chunks cost
    no more than large ones."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # what is before it has been read
        self._code = 0
        self._headers: dict[str, str] | None = None
        self._start = 0  # of the body
        self._chunks = bytearray()

    def read(self, data: Buffer, *, ended: bool) -> Response | None:
        """Returns the response, None while it is incomplete; raises ValueError if it is malformed
        or too large. `ended` says that nothing follows."""
        self._data += data
        if self._headers is None:
            self._headers = self._head(ended=ended)
            if self._headers is None:
                return None
        rest = len(self._data) - self._start
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            body = self._chunked()
        elif "content-length" in self._headers:
            size = _length(self._headers["content-length"])
            body = bytes(self._data[self._start : self._start + size]) if rest >= size else None
        else:
            body = bytes(self._data[self._start :]) if ended else None
        if rest > 2 * BODY_BYTES_MAX or len(body or b"") > BODY_BYTES_MAX:
            raise ValueError(f"the response has more than {BODY_BYTES_MAX} bytes")
        if body is None and ended:
            raise ValueError("the response is incomplete")
        return None if body is None else Response(self._code, body)

    def _head(self, *, ended: bool) -> dict[str, str] | None:
        """Returns the headers of the final response: interim ones (1xx) come before it."""
        while True:
            # The end of a head may have begun in the last piece.
            looked = max(self._start, self._at - len(_HEAD_END) + 1)
            end = self._data.find(_HEAD_END, looked, _HEADS_BYTES_MAX)
            if end < 0:
                if ended or len(self._data) >= _HEADS_BYTES_MAX:
                    raise ValueError("the response is not HTTP")
                self._at = len(self._data)
                return None
            lines = self._data[self._start : end].decode("latin-1").split("\r\n")
            self._at = self._start = end + len(_HEAD_END)
            version, _, status = lines[0].partition(" ")
            code = status[:3]
            if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
                raise ValueError("the response is not HTTP")
            self._code = int(code)
            if self._code >= 200:
                return {
                    name.strip().lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:])
                }

    def _chunked(self) -> bytes | None:
        data = self._data
        while True:
            end = data.find(b"\r\n", self._at, self._at + _CHUNK_LINE_BYTES_MAX)
            if end < 0:
                if len(data) - self._at >= _CHUNK_LINE_BYTES_MAX:
                    raise ValueError("a chunk of the response has no valid size")
                return None
            digits = bytes(data[self._at : end]).partition(b";")[0].strip()
            if not _CHUNK_SIZE.fullmatch(digits) or (size := int(digits, 16)) > BODY_BYTES_MAX:
                raise ValueError("a chunk of the response has no valid size")
            if size == 0:
                return bytes(self._chunks)
            start = end + 2
            if len(data) < start + size + 2:
                return None
            self._chunks += data[start : start + size]
            self._at = start + size + 2


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ValueError("the length of the response is not a number")
    if int(text) > BODY_BYTES_MAX:
        raise ValueError(f"the response has more than {BODY_BYTES_MAX} bytes")
    return int(text)
