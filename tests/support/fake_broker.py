"""A broker that does what a test tells it: answers, lies, stalls, hangs up.

It speaks the real protocol on loopback, on the loop of the test. What it is not told it answers as
a small cluster would: versions, and metadata of itself and its `neighbours`.
"""

from __future__ import annotations

import asyncio
import functools
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from headwater.io import Address
from headwater.protocol import Message, decode
from headwater.protocol.apis import APIS, ApiKey, request_class
from headwater.protocol.frame import encode_response, read_request_header
from headwater.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headwater.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
    EndpointType,
)
from headwater.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PATIENCE_SECONDS = 30.0


# Clients ask for these by themselves where they are served.
_UNLESS_ANSWERED = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


class HangUp(Exception):
    """Raised by an answer: the connection ends instead."""


# What an answer may be: a message, raw bytes of a whole frame or of a part of one, or nothing ever.
Answer = Message | bytes | None
Answers = Callable[[Any], "Answer | Awaitable[Answer]"]


def story(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine. It ends in bounded time, whatever it waits for."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **named), PATIENCE_SECONDS))

    return run


class FakeBroker:
    """Use it as `async with FakeBroker() as broker`, and set `broker.answers[key]`."""

    def __init__(self, node_id: int = 1, *, port: int = 0, is_controller: bool = False) -> None:
        self.node_id = node_id
        self.is_controller = is_controller
        self.neighbours: list[FakeBroker] = []
        self.topics: list[MetadataResponseTopic] = []
        self.controller_id = node_id
        self.answers: dict[int, Answers] = {
            ApiKey.API_VERSIONS: lambda _: self.versions(),
            ApiKey.METADATA: lambda _: self.metadata(),
            ApiKey.DESCRIBE_CLUSTER: lambda _: self.controllers(),
        }
        self.asked: list[Message] = []
        self.versions_asked: list[tuple[int, int]] = []  # key and version of each request
        self.connections = 0  # all that ever came
        self.open = 0
        self.address = Address("127.0.0.1", port)
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def bootstrap(self) -> str:
        return str(self.address)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.address.port)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        while self.open:
            await self.changed()

    def hang_up(self) -> None:
        """Cuts every connection that is there."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def changed(self) -> None:
        """Until something was asked, or a connection came or went."""
        self._changed = asyncio.Event()
        await self._changed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed()

    def count(self, key: int) -> int:
        return sum(key == type(request).API for request in self.asked)

    # What it answers by itself

    def versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=api.key, min_version=api.advertised[0], max_version=api.advertised[1]
                )
                for api in APIS.values()
                if api.advertised is not None
                and (api.key not in _UNLESS_ANSWERED or api.key in self.answers)
                and (api.on_controller if self.is_controller else api.on_broker)
            ]
        )

    def controllers(self) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            endpoint_type=EndpointType.CONTROLLER,
            cluster_id="fake",
            controller_id=self.controller_id,
            brokers=[
                DescribeClusterBroker(
                    broker_id=each.node_id, host=each.address.host, port=each.address.port
                )
                for each in [self, *self.neighbours]
            ],
        )

    def metadata(self) -> MetadataResponse:
        return MetadataResponse(
            cluster_id="fake",
            controller_id=self.controller_id,
            brokers=[
                MetadataResponseBroker(
                    node_id=each.node_id, host=each.address.host, port=each.address.port
                )
                for each in [self, *self.neighbours]
            ],
            topics=self.topics,
        )

    # Serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self._writers.add(writer)
        self._changed.set()
        is_silent = False
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                # Answers come in order: behind one that never comes there is none either.
                is_silent |= await self._answer(frame, None if is_silent else writer)
        except (asyncio.IncompleteReadError, ConnectionError, HangUp):
            pass
        finally:
            self.open -= 1
            self._writers.discard(writer)
            self._changed.set()
            writer.close()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter | None) -> bool:
        """Returns whether a request is waiting for an answer that never comes."""
        header, position = read_request_header(frame)
        key, version = header.api.key, header.version
        request = decode(request_class(key), frame, version, position)
        self.asked.append(request)
        self.versions_asked.append((key, version))
        self._changed.set()
        found = self.answers[key](request)
        answer = await found if isinstance(found, Awaitable) else found
        if isinstance(answer, Message):
            answer = bytes(encode_response(answer, version, header.correlation_id))
        if answer is None:
            return getattr(request, "acks", None) != 0
        if writer is not None:
            writer.write(answer)
            await writer.drain()
        return False


def one_topic(
    name: str, *, leader: int = 1, epoch: int = 0, topic_id: bytes = bytes(15) + b"\x01"
) -> MetadataResponseTopic:
    """A topic with one partition."""
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            MetadataResponsePartition(
                leader_id=leader, leader_epoch=epoch, replica_nodes=[leader], isr_nodes=[leader]
            )
        ],
    )
