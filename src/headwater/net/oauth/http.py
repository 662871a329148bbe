"""Single HTTP/1.1 requests to a token endpoint or for a JWKS, over the host's network.

One connection a request, bounded in size and time. Redirects are not followed: an address that is
allowed must not choose another one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from headwater.io import Host, Receiver, Stream
from headwater.security.oauth import OAuthRefused
from headwater.security.stores import NEEDS_EXTRA, read_store

_READ_BYTES = 16 * 1024
_HEAD_BYTES_MAX = 64 * 1024
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
    """Sends a GET, or a POST with a body. `context` is for https; by default the certificates of
    the system are trusted. Raises HttpFailed."""
    at = urlsplit(url)
    name = at.hostname or ""
    where = f"{at.scheme}://{at.netloc.rpartition('@')[2]}"
    exchange = _Exchange()
    stream: Stream | None = None
    try:
        tls = None
        if at.scheme == "https":
            from headwater.io.tls import Tls, Trust, client_context

            tls = Tls(context or client_context(Trust()), name)
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


def endpoint_context(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Returns the TLS context for an address with https, from the options of `sasl.jaas.config`;
    None, if they name no truststore, for the certificates of the system. Raises OAuthRefused."""
    from headwater.io.tls import Trust, client_context, read_file

    path = options.get("ssl.truststore.location")
    if path is None:
        return None
    kind, password = (
        options.get("ssl.truststore.type", "PEM"),
        options.get("ssl.truststore.password"),
    )
    try:
        store = read_store(read_file(path), kind, password, None)
        return client_context(Trust(ca_pem=store.trusted or store.chain))
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
        self._data = bytearray()
        self._done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    async def response(self) -> Response:
        return await self._done

    def buffer(self) -> memoryview:
        return self._view

    def received(self, count: int) -> None:
        if self._done.done():
            return
        self._data += self._view[:count]
        self._try(ended=False)

    def drained(self) -> None: ...

    def ended(self) -> None:
        self._try(ended=True)

    def closed(self, error: OSError | None) -> None:
        if error is None:
            self._try(ended=True)
        elif not self._done.done():
            self._done.set_exception(HttpFailed(f"the connection ended: {error.strerror or error}"))
            self._done.exception()  # nobody may be waiting yet

    def _try(self, *, ended: bool) -> None:
        if self._done.done():
            return
        try:
            found = parse(bytes(self._data), ended=ended)
        except ValueError as error:
            self._done.set_exception(HttpFailed(str(error)))
            self._done.exception()
            return
        if found is not None:
            self._done.set_result(found)


def parse(data: bytes, *, ended: bool) -> Response | None:
    """Returns the response in `data`, None while it is incomplete; raises ValueError if it is
    malformed or too large."""
    head, blank, rest = data.partition(b"\r\n\r\n")
    if not blank:
        if ended or len(data) > _HEAD_BYTES_MAX:
            raise ValueError("the response is not HTTP")
        return None
    lines = head.decode("latin-1").split("\r\n")
    version, _, status = lines[0].partition(" ")
    if not version.startswith("HTTP/1.") or not status[:3].isdigit() or len(head) > _HEAD_BYTES_MAX:
        raise ValueError("the response is not HTTP")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:])
    }
    code = int(status[:3])
    if code < 200:  # an interim response
        return parse(rest, ended=ended)
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _chunks(rest)
    elif "content-length" in headers:
        body = _counted(rest, headers["content-length"])
    else:
        body = rest if ended else None
    if max(len(rest), len(body or b"")) > 2 * BODY_BYTES_MAX or len(body or b"") > BODY_BYTES_MAX:
        raise ValueError(f"the response has more than {BODY_BYTES_MAX} bytes")
    if body is None and ended:
        raise ValueError("the response is incomplete")
    return None if body is None else Response(code, body)


def _counted(rest: bytes, length: str) -> bytes | None:
    if not length.isdigit() or len(length) > 9:
        raise ValueError("the length of the response is not a number")
    if int(length) > BODY_BYTES_MAX:
        raise ValueError(f"the response has more than {BODY_BYTES_MAX} bytes")
    return rest[: int(length)] if len(rest) >= int(length) else None


def _chunks(rest: bytes) -> bytes | None:
    body = bytearray()
    while True:
        line, end, rest = rest.partition(b"\r\n")
        if not end:
            return None
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            size = -1
        if not 0 <= size <= BODY_BYTES_MAX:
            raise ValueError("a chunk of the response has no valid size")
        if size == 0:
            return bytes(body)
        if len(rest) < size + 2:
            return None
        body += rest[:size]
        rest = rest[size + 2 :]
