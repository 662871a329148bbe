"""One connection: a broker that behaves, and peers that do not."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from headwater.client.connection import Connection, connect
from headwater.client.errors import (
    ClientError,
    Disconnected,
    NotKafka,
    RequestTimedOut,
    UnsupportedVersion,
    WrongListener,
)
from headwater.errors import ErrorCode
from headwater.io import Address, Host
from headwater.protocol.apis import ApiKey
from headwater.protocol.frame import encode_response
from headwater.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headwater.protocol.messages.describe_groups import DescribeGroupsRequest
from headwater.protocol.messages.fetch import FetchRequest
from headwater.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import FakeBroker, HangUp, one_topic, story


async def open_to(address: Address, *, timeout_ms: int = 20_000) -> Connection:
    return await connect(
        Host.system(),
        address,
        node_id=1,
        client_id="test",
        timeout_ms=timeout_ms,
        request_timeout_ms=20_000,
    )


class Ends:
    """The outcomes of a test's requests, each with its number."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Any, ClientError | None]] = []

        self._changed = asyncio.Event()

    def of(self, number: int) -> Callable[[Any, ClientError | None], None]:
        def done(answer: Any, error: ClientError | None) -> None:
            self.seen.append((number, answer, error))
            self._changed.set()

        return done

    async def until(self, count: int) -> None:
        while len(self.seen) < count:
            self._changed.clear()
            await self._changed.wait()

    @property
    def errors(self) -> list[type | None]:
        return [None if error is None else type(error) for _, _, error in self.seen]


@pytest.fixture(scope="module")
def broker() -> Any:
    with EmbeddedBroker() as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        yield Address(host, int(port))


# A broker that behaves


@story
async def test_the_newest_version_of_both_sides_is_spoken(broker: Address) -> None:
    connection = await open_to(broker)
    answer = await connection.ask(MetadataRequest(topics=[]))
    assert isinstance(answer, MetadataResponse)
    assert connection.version(ApiKey.METADATA) == 13
    assert connection.version(ApiKey.METADATA, at_most=9) == 9
    assert connection.version(ApiKey.PRODUCE, at_most=2) is None
    assert connection.version(ApiKey.VOTE) is None
    connection.close()


@story
async def test_answers_come_in_the_order_of_the_requests(broker: Address) -> None:
    connection = await open_to(broker)
    ends = Ends()
    for number in range(100):
        connection.post(MetadataRequest(topics=[]), 9, ends.of(number), timeout_ms=20_000)
    assert connection.in_flight == 100
    await connection.ask(MetadataRequest(topics=[]))
    assert [number for number, _, _ in ends.seen] == list(range(100))
    assert connection.in_flight == 0
    connection.close()


@story
async def test_answers_can_be_had_without_the_loop(broker: Address) -> None:
    connection = await open_to(broker)
    ends = Ends()
    for number in range(20):
        connection.post(MetadataRequest(topics=[]), 12, ends.of(number), timeout_ms=20_000)
        while connection.in_flight > 4:
            assert connection.pump(20.0)
    while connection.in_flight:
        assert connection.pump(20.0)
    assert ends.errors == [None] * 20
    assert not connection.pump(0)
    connection.close()


@story
async def test_the_end_of_a_connection_is_seen_without_the_loop() -> None:
    with EmbeddedBroker() as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        connection = await open_to(Address(host, int(port)))
    ends = Ends()
    connection.post(MetadataRequest(topics=[]), 12, ends.of(0), timeout_ms=20_000)
    while not ends.seen:
        connection.pump(20.0)
    assert ends.errors == [Disconnected]
    assert not connection.is_open
    assert not connection.pump(0)


@story
async def test_a_request_that_the_broker_is_too_old_for_is_refused_here() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.API_VERSIONS] = lambda _: ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=3, min_version=0, max_version=1)]
        )
        connection = await open_to(broker.address)
        with pytest.raises(UnsupportedVersion, match="allow_auto_topic_creation"):
            await connection.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        with pytest.raises(UnsupportedVersion, match="DescribeGroups"):
            await connection.ask(DescribeGroupsRequest(groups=["g"]))
        assert connection.is_open
        connection.close()


@story
async def test_an_older_broker_is_asked_again_in_its_version() -> None:
    async with FakeBroker() as broker:

        def answer(request: Any) -> Any:
            _, version = broker.versions_asked[-1]
            if version <= 2:
                return broker.versions()
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)],
            )
            return bytes(encode_response(refusal, 0, 1))

        broker.answers[ApiKey.API_VERSIONS] = answer
        connection = await open_to(broker.address)
        assert [version for _, version in broker.versions_asked] == [4, 2]
        assert connection.version(ApiKey.METADATA) == 13
        connection.close()


@story
async def test_records_of_an_answer_live_as_long_as_they_are_held(broker: Address) -> None:
    """Small frames and large ones: what was decoded points into a buffer of its own."""
    async with FakeBroker() as fake:
        sizes = iter([10, 200_000, 10, 70_000])

        def answer(_: Any) -> MetadataResponse:
            # Padding by names makes frames of any size.
            return MetadataResponse(topics=[one_topic("x" * 200)] * (next(sizes) // 200 + 1))

        fake.answers[ApiKey.METADATA] = answer
        connection = await open_to(fake.address)
        kept = [await connection.ask(MetadataRequest(topics=None)) for _ in range(4)]
        assert [len(each.topics) for each in kept] == [1, 1001, 1, 351]
        assert all(topic.name == "x" * 200 for each in kept for topic in each.topics)
        connection.close()


# Peers that are not Kafka


async def failure_with(
    behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], *, timeout_ms: int = 20_000
) -> ClientError:
    """Returns the error of an attempt to connect to such a peer."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behave(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(ClientError) as caught:
        await open_to(address, timeout_ms=timeout_ms)
    server.close()
    assert str(address) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"<!DOCTYPE HTML>", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"-ERR unknown command\r\n", "an unknown protocol"),
        (b"\xff\xff\xff\xff\xff\xff", "an unknown protocol"),
        (b"\x00\x00\x00\x00", "an unknown protocol"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x01\x00", "an unknown protocol"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", "an unknown protocol"),
    ],
)
def test_a_port_of_another_service_is_named_at_once(said: bytes, what: str) -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(said)
        await writer.drain()
        await reader.read()

    @story
    async def run() -> None:
        error = await failure_with(behave)
        assert isinstance(error, NotKafka)
        assert f"speaks {what}" in str(error)

    run()


@story
async def test_a_peer_that_hangs_up_at_once_may_want_tls() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)

    error = await failure_with(behave)
    assert isinstance(error, Disconnected)
    assert "TLS or SASL" in str(error)


@story
async def test_a_silent_peer_is_left_after_the_setup_time() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await reader.read()

    for timeout_ms in (50, 500, 5000):
        error = await failure_with(behave, timeout_ms=timeout_ms)
        assert isinstance(error, Disconnected)
        if "no connection" not in str(error):  # a busy machine may need longer for that alone
            break
    assert f"no response within {timeout_ms} ms" in str(error)


@story
async def test_nobody_at_the_port_is_said() -> None:
    async with FakeBroker() as broker:
        address = broker.address
    with pytest.raises(Disconnected, match="refused"):
        await open_to(address)


@story
async def test_a_name_with_several_addresses_is_tried_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeBroker() as dead:
        pass
    async with FakeBroker() as broker:

        async def places(*_: Any, **__: Any) -> list[Any]:
            kind = socket.SOCK_STREAM
            ports = (dead.address.port, broker.address.port, dead.address.port)
            return [(socket.AF_INET, kind, 0, "", ("127.0.0.1", port)) for port in ports]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", places)
        connection = await open_to(Address("several", 1))
        assert broker.connections == 1
        connection.close()
        await broker.stop()
        with pytest.raises(Disconnected, match=r"several:1.*connection refused"):
            await open_to(Address("several", 1))
        await broker.start()


@story
async def test_a_name_that_does_not_exist_is_said() -> None:
    with pytest.raises(Disconnected, match=r"no\.such\.name\.invalid:9092"):
        await open_to(Address("no.such.name.invalid", 9092))


@story
async def test_a_controller_is_no_broker() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.API_VERSIONS] = lambda _: ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=ApiKey.VOTE, min_version=0, max_version=2)]
        )
        with pytest.raises(WrongListener, match="is a controller's listener"):
            await open_to(broker.address)


# Peers that begin well


async def posted(
    broker: FakeBroker, count: int = 3, *, timeout_ms: int = 20_000
) -> tuple[Connection, Ends]:
    connection = await open_to(broker.address)
    ends = Ends()
    for number in range(count):
        connection.post(MetadataRequest(topics=[]), 12, ends.of(number), timeout_ms=timeout_ms)
    return connection, ends


def hang_up(_: Any) -> None:
    raise HangUp


@story
async def test_all_that_is_in_flight_ends_once_when_the_broker_goes() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.METADATA] = hang_up
        connection, ends = await posted(broker)
        await broker.until(lambda: broker.open == 0)
        await ends.until(3)
        assert ends.errors == [Disconnected] * 3
        assert not connection.is_open
        connection.close()
        assert len(ends.seen) == 3


@story
async def test_a_closed_connection_ends_a_request_at_once() -> None:
    async with FakeBroker() as broker:
        connection, ends = await posted(broker, 0)
        connection.close()
        connection.post(MetadataRequest(topics=[]), 12, ends.of(0), timeout_ms=20_000)
        assert ends.errors == [Disconnected]
        request = MetadataRequest(topics=[])
        connection.post(request, 12, ends.of(1), timeout_ms=20_000, is_answered=False)
        assert ends.errors == [Disconnected] * 2


@pytest.mark.parametrize(
    "said",
    [
        struct.pack(">iib", 5, 999, 0),  # the answer to something else
        struct.pack(">iib", 5, 2, 0),  # too short for what it is
        struct.pack(">i", 300 * 1024 * 1024),  # longer than anything may be
        struct.pack(">i", -1),
        struct.pack(">i", 0),
    ],
)
def test_an_answer_out_of_step_ends_the_connection(said: bytes) -> None:
    @story
    async def run() -> None:
        async with FakeBroker() as broker:
            broker.answers[ApiKey.METADATA] = lambda _: said
            connection = await open_to(broker.address)
            with pytest.raises(Disconnected):
                await connection.ask(MetadataRequest(topics=[]))
            assert not connection.is_open

    run()


@story
async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: bytes(
            encode_response(broker.metadata(), 12, 2) * 2
        )
        connection, ends = await posted(broker, 1)
        await broker.until(lambda: broker.open == 0)
        assert ends.errors == [None]
        assert not connection.is_open


@story
async def test_a_frame_that_stops_in_the_middle_is_a_disconnect() -> None:
    async with FakeBroker() as broker:
        whole = bytes(encode_response(MetadataResponse(topics=[one_topic("x" * 999)] * 99), 12, 2))

        async def half(_: Any) -> bytes:
            asyncio.get_running_loop().call_later(0.05, broker.hang_up)
            return whole[: len(whole) // 2]

        broker.answers[ApiKey.METADATA] = half
        connection, ends = await posted(broker, 2)
        await broker.until(lambda: broker.open == 0)
        await ends.until(2)
        assert ends.errors == [Disconnected] * 2
        connection.close()


@story
async def test_an_answer_that_does_not_come_ends_the_connection() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: None
        connection, ends = await posted(broker, 1, timeout_ms=50)
        connection.post(MetadataRequest(topics=[]), 12, ends.of(1), timeout_ms=20_000)
        await broker.until(lambda: broker.open == 0)
        assert sorted(number for number, _, _ in ends.seen) == [0, 1]
        by_number = {number: type(error) for number, _, error in ends.seen}
        assert by_number == {0: RequestTimedOut, 1: Disconnected}
        assert not connection.is_open


@story
async def test_an_answer_that_does_not_come_ends_the_connection_without_the_loop() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: None
        connection, ends = await posted(broker, 1, timeout_ms=50)
        while not ends.seen:
            connection.pump(0.01)
        assert ends.errors == [RequestTimedOut]


@story
async def test_a_throttled_connection_says_until_when() -> None:
    async with FakeBroker() as broker:
        connection = await open_to(broker.address)
        assert connection.throttled_until == 0
        broker.answers[ApiKey.METADATA] = lambda _: MetadataResponse(throttle_time_ms=60_000)
        await connection.ask(MetadataRequest(topics=[]))
        assert connection.throttled_until > Host.system().clock.monotonic() + 30
        connection.close()


@story
async def test_no_answer_is_awaited_where_none_comes() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.FETCH] = lambda _: None
        connection = await open_to(broker.address)
        request = FetchRequest(max_wait_ms=0, min_bytes=0)
        ends = Ends()
        connection.post(request, 12, ends.of(0), timeout_ms=1, is_answered=False)
        assert connection.in_flight == 0
        await broker.until(lambda: broker.count(ApiKey.FETCH) == 1)
        assert connection.is_open
        assert ends.seen == [(0, None, None)]
        connection.close()
