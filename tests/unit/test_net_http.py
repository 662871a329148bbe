"""The HTTP server of metrics and health: what it answers, and what bounds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from headwater.io import Address, Host
from headwater.net.http import (
    BadRequest,
    HttpAnswer,
    HttpLimits,
    HttpRequest,
    HttpServer,
    parse_head,
)

PATIENCE = 60.0
LIMITS = HttpLimits()

Talk = Callable[[bytes], Awaitable[bytes]]


def serve(request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
    if request.path.startswith("/later"):
        return _later(request)
    if request.path == "/parts":
        return HttpAnswer(f"part {at}\n" for at in range(3))
    if request.path == "/endless":
        return HttpAnswer(_endless())
    if request.path == "/broken":
        return HttpAnswer(_broken())
    return HttpAnswer(f"{request.method} {request.path}\n")


async def _later(request: HttpRequest) -> HttpAnswer:
    await asyncio.sleep(0)
    if request.query == "broken":
        raise ValueError("a handler with a bug")
    return HttpAnswer(f"later {request.query}\n")


def _endless() -> Iterator[str]:
    while True:
        yield "x" * 10_000


def _broken() -> Iterator[str]:
    yield "begun\n"
    raise ValueError("a collector with a bug")


@asynccontextmanager
async def running(limits: HttpLimits = LIMITS) -> AsyncIterator[tuple[HttpServer, Address]]:
    host = Host.in_memory()
    server = HttpServer(host, serve, limits)
    try:
        yield server, server.start("127.0.0.1", 0)
    finally:
        await asyncio.gather(*server.stop(), return_exceptions=True)
        host.workers.close()


async def talk(at: Address, request: bytes) -> bytes:
    """Sends bytes and returns everything that comes until the server closes."""
    reader, writer = await asyncio.open_connection(*at)
    try:
        writer.write(request)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110  # the server tells nobody
            await asyncio.sleep(0)


def one(request: bytes, limits: HttpLimits = LIMITS) -> bytes:
    async def main() -> bytes:
        async with running(limits) as (_, at):
            return await talk(at, request)

    return asyncio.run(main())


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: x", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


CLOSE = "Connection: close"


def test_a_request_is_answered() -> None:
    answer = one(get("/healthz?x=1", CLOSE))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 13" in head
    assert b"Connection: close" in head
    assert body == b"GET /healthz\n"


def test_a_connection_serves_several_requests_also_when_they_come_at_once() -> None:
    answer = one(get("/one") + get("/parts") + get("/two", CLOSE))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b"/one") < answer.index(b"part 0") < answer.index(b"GET /two")


def test_a_long_answer_comes_in_chunks_or_until_the_end() -> None:
    assert one(get("/parts", CLOSE)).endswith(
        b"\r\n\r\n7\r\npart 0\n\r\n7\r\npart 1\n\r\n7\r\npart 2\n\r\n0\r\n\r\n"
    )
    answer = one(b"GET /parts HTTP/1.0\r\n\r\n")
    assert b"chunked" not in answer
    assert answer.endswith(b"\r\n\r\npart 0\npart 1\npart 2\n")


def test_a_head_request_gets_no_body() -> None:
    assert one(b"HEAD /a HTTP/1.1\r\nConnection: close\r\n\r\n").endswith(b"\r\n\r\n")
    assert one(b"HEAD /parts HTTP/1.1\r\nConnection: close\r\n\r\n").endswith(b"\r\n\r\n")


def test_an_answer_that_breaks_off_is_not_complete() -> None:
    async def main() -> bytes:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        async with running() as (server, at):
            answer = await talk(at, get("/broken", CLOSE))
            assert told == ["an answer to an HTTP request failed"]
            assert server.long_answers == 0
        return answer

    assert not asyncio.run(main()).endswith(b"0\r\n\r\n")


def test_an_answer_may_take_time_and_the_next_request_waits_for_it() -> None:
    told: list[str] = []

    async def main() -> tuple[bytes, bytes]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        async with running() as (_, at):
            both = await talk(at, get("/later?a=1") + get("/later?a=2", CLOSE))
            assert told == []
            return both, await talk(at, get("/later?broken", CLOSE))

    both, broken = asyncio.run(main())
    assert both.index(b"later a=1") < both.index(b"later a=2")
    assert broken == b""
    assert told == ["an HTTP request failed"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/2", HTTPStatus.BAD_REQUEST),
        (b"GET /", HTTPStatus.BAD_REQUEST),
        (b"", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01 \x00 \x00", HTTPStatus.BAD_REQUEST),
        (b"GET http://else/ HTTP/1.1", HTTPStatus.BAD_REQUEST),
        (b"POST / HTTP/1.1", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET / HTTP/1.1\r\nno colon", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n: empty", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\na b: c", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n folded: c", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nContent-Length: 5", HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked", HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (b"GET / HTTP/1.1" + b"\r\na: b" * 65, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    ],
)
def test_what_is_no_request_is_refused(head: bytes, status: HTTPStatus) -> None:
    with pytest.raises(BadRequest) as refusal:
        parse_head(head, LIMITS)
    assert refusal.value.status is status


def test_a_refusal_says_why_and_ends_the_connection() -> None:
    answer = one(b"DELETE / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"Allow: GET, HEAD" in answer
    assert answer.endswith(b"expected GET or HEAD\n")


def test_a_head_without_an_end_is_refused() -> None:
    assert one(b"GET / HTTP/1.1\r\nx: " + b"x" * 9000).startswith(b"HTTP/1.1 431 ")


def test_a_peer_that_says_nothing_is_closed() -> None:
    assert one(b"GET / HT", HttpLimits(head_seconds=0.01)) == b""
    assert one(b"", HttpLimits(head_seconds=0.01)) == b""


def test_an_idle_connection_is_closed() -> None:
    assert one(get("/a"), HttpLimits(idle_seconds=0.01)).endswith(b"GET /a\n")


def test_a_reader_that_takes_nothing_costs_a_bounded_answer_for_a_bounded_time() -> None:
    async def main() -> None:
        async with running(HttpLimits(answer_seconds=0.05)) as (server, at):
            reader, writer = await asyncio.open_connection(*at, limit=2)
            writer.write(get("/endless"))
            await until(lambda: server.long_answers == 1)
            await until(lambda: server.long_answers == 0)
            assert len(await reader.read(1)) == 1
            writer.close()

    asyncio.run(main())


def test_only_some_long_answers_are_made_at_once() -> None:
    async def main() -> None:
        async with running(HttpLimits(long_answers_max=1)) as (server, at):
            _, writer = await asyncio.open_connection(*at)
            writer.write(get("/endless"))
            await until(lambda: server.long_answers == 1)
            assert (await talk(at, get("/parts", CLOSE))).startswith(b"HTTP/1.1 503 ")
            assert (await talk(at, get("/healthz", CLOSE))).startswith(b"HTTP/1.1 200 ")
            writer.close()

    asyncio.run(main())


def test_only_some_connections_are_served() -> None:
    async def main() -> None:
        async with running(HttpLimits(connections_max=2)) as (_, at):
            kept = [await asyncio.open_connection(*at) for _ in range(2)]
            assert await talk(at, get("/a", CLOSE)) == b""
            for reader, writer in kept:
                writer.write(get("/b", CLOSE))
                async with asyncio.timeout(PATIENCE):
                    assert (await reader.read()).endswith(b"GET /b\n")
                writer.close()
            assert (await talk(at, get("/c", CLOSE))).endswith(b"GET /c\n")

    asyncio.run(main())
