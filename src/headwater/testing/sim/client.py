"""A small client inside the simulation: asks, waits, connects again.

It speaks a random version of each API that the node offers, so that many seeds speak them all. A
call ends with an answer or with `Unknown`: a timeout or a lost connection says nothing about what
the node did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from struct import Struct
from typing import TypeVar

from headwater.errors import ErrorCode
from headwater.io import Host, Stream
from headwater.model import TopicPartition
from headwater.protocol import Message, decode
from headwater.protocol.apis import APIS, request_class, response_class
from headwater.protocol.frame import encode_request, read_response_header
from headwater.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headwater.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headwater.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

M = TypeVar("M", bound=Message)

_SIZE = Struct(">i")
_TOPIC_RESOURCE = 2
_SET = 0
_LOWEST = {0: 7, 1: 10}  # below these nobody may produce or fetch zstd


class Unknown(Exception):
    """Nobody knows whether the node did what it was asked."""


class Wire:
    """One connection: frames out, frames in, matched by their number."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.versions: dict[int, int] = {}
        self.gone = False
        self._buffer = bytearray(16 * 1024)
        self._inbox = bytearray()
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def ask(self, request: Message, version: int, client_id: str) -> asyncio.Future[bytes]:
        assert self.stream is not None
        self._next_id += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.gone:
            answer.set_exception(Unknown("connection gone"))
            return answer
        self._waiting[self._next_id] = answer
        self.stream.send((bytes(encode_request(request, version, self._next_id, client_id)),))
        return answer

    def buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        inbox = self._inbox
        inbox += self._buffer[:count]
        while len(inbox) >= 4:
            size = _SIZE.unpack_from(inbox)[0]
            if len(inbox) < 4 + size:
                return
            frame = bytes(inbox[4 : 4 + size])
            del inbox[: 4 + size]
            answer = self._waiting.pop(_SIZE.unpack_from(frame)[0], None)
            if answer is not None and not answer.done():
                answer.set_result(frame)

    def drained(self) -> None: ...

    def ended(self) -> None:
        assert self.stream is not None
        self.stream.close()

    def closed(self, error: OSError | None) -> None:
        self.gone = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Unknown(f"connection lost: {error}"))
                answer.exception()  # nobody waits for it any more
        self._waiting.clear()

    def accept(self, stream: Stream) -> Wire:
        self.stream = stream
        return self


class SimClient:
    """Talks to one node."""

    def __init__(self, host: Host, random: Random, client_id: str, ip: str, port: int) -> None:
        self._host = host
        self._random = random
        self._client_id = client_id
        self._ip = ip
        self._port = port
        self._wire: Wire | None = None
        self.timeout_seconds = 5.0

    async def _connected(self) -> Wire:
        wire = self._wire
        if wire is not None and not wire.gone:
            return wire
        wire = Wire()
        try:
            await self._host.network.connect(self._ip, self._port, wire.accept)
        except OSError as error:
            raise Unknown(f"not connected: {error}") from None
        request = ApiVersionsRequest(client_software_name="sim", client_software_version="1")
        frame = await wire.ask(request, 3, self._client_id)
        answer = _read(ApiVersionsResponse, frame, 3)
        assert answer.error_code == 0, f"ApiVersions answered {answer.error_code}"
        for api in answer.api_keys:
            known = APIS.get(api.api_key)
            if known is None or known.versions is None:
                continue
            low, high = request_class(api.api_key).VERSIONS
            low, high = max(low, api.min_version), min(high, api.max_version)
            if low <= high:
                low = max(low, _LOWEST.get(api.api_key, 0))
                # Mostly the newest, which is what people run; sometimes any.
                newest = self._random.random() < 0.6
                wire.versions[api.api_key] = high if newest else self._random.randint(low, high)
        self._wire = wire
        return wire

    def close(self) -> None:
        if self._wire is not None and self._wire.stream is not None:
            self._wire.stream.abort()
        self._wire = None

    async def call(self, build: Callable[[int], Message], answer_class: type[M]) -> M:
        """The answer, or `Unknown`. What is asked may depend on the version."""
        (found,) = await self.attempt([build], answer_class)
        if found is None:
            raise Unknown("no answer")
        return found

    async def attempt(
        self, builds: list[Callable[[int], Message]], answer_class: type[M]
    ) -> list[M | None]:
        """Sends all, then awaits the answers; None for each that did not come."""
        key = answer_class.API
        assert key is not None
        found: list[M | None] = []
        try:
            async with asyncio.timeout(self.timeout_seconds):
                wire = await self._connected()
                assert key in wire.versions, f"the node does not serve {APIS[key].name}"
                version = wire.versions[key]
                futures = [wire.ask(build(version), version, self._client_id) for build in builds]
                for future in futures:
                    # One by one: those that came stay when a later one does not.
                    found.append(_read(answer_class, await future, version))  # noqa: PERF401
        except (TimeoutError, Unknown):
            self.close()
        return found + [None] * (len(builds) - len(found))

    # What people do

    async def metadata(self) -> MetadataResponse:
        return await self.call(_all_topics, MetadataResponse)

    async def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> int:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=4_000)
        return (await self.call(lambda _: request, CreateTopicsResponse)).topics[0].error_code

    async def delete_topic(self, name: str) -> int:
        def build(version: int) -> Message:
            if version < 6:
                return DeleteTopicsRequest(topic_names=[name], timeout_ms=4_000)
            topic = DeleteTopicState(name=name, topic_id=bytes(16))
            return DeleteTopicsRequest(topics=[topic], timeout_ms=4_000)

        return (await self.call(build, DeleteTopicsResponse)).responses[0].error_code

    async def alter_topic(self, name: str, configs: dict[str, str]) -> int:
        resource = AlterConfigsResource(
            resource_type=_TOPIC_RESOURCE,
            resource_name=name,
            configs=[
                AlterableConfig(name=key, config_operation=_SET, value=text)
                for key, text in configs.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self.call(lambda _: request, IncrementalAlterConfigsResponse)
        return answer.responses[0].error_code

    async def describe_topic(self, name: str) -> dict[str, str | None]:
        resource = DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])
        result = (await self.call(lambda _: request, DescribeConfigsResponse)).results[0]
        return {one.name: one.value for one in result.configs} if not result.error_code else {}

    async def init_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self.call(lambda _: request, InitProducerIdResponse)
        if answer.error_code:
            raise Unknown(ErrorCode(answer.error_code).name)
        return answer.producer_id, answer.producer_epoch

    async def produce(
        self, tp: TopicPartition, topic_id: bytes, batches: list[bytes], acks: int
    ) -> list[PartitionProduceResponse | None]:
        """Sends all before the first answer has come; None for each that did not come."""

        def build(batch: bytes, version: int) -> Message:
            data = PartitionProduceData(index=tp.partition, records=batch)
            topic = TopicProduceData(name=tp.topic, topic_id=topic_id, partition_data=[data])
            return ProduceRequest(acks=acks, timeout_ms=4_000, topic_data=[topic])

        answers = await self.attempt([partial(build, batch) for batch in batches], ProduceResponse)
        return [
            answer.responses[0].partition_responses[0] if answer is not None else None
            for answer in answers
        ]

    async def fetch(
        self, tp: TopicPartition, topic_id: bytes, offset: int, *, bytes_max: int, wait_ms: int
    ) -> PartitionData:
        wanted = FetchPartition(
            partition=tp.partition, fetch_offset=offset, partition_max_bytes=bytes_max
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            topics=[FetchTopic(topic=tp.topic, topic_id=topic_id, partitions=[wanted])],
        )
        answer = await self.call(lambda _: request, FetchResponse)
        if answer.error_code or not answer.responses:
            return PartitionData(
                error_code=answer.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                high_watermark=-1,
            )
        return answer.responses[0].partitions[0]

    async def list_offset(self, tp: TopicPartition, timestamp: int) -> tuple[int, int]:
        """(error code, offset): -1 is the end, -2 the start."""
        partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=tp.topic, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=4_000)
        answer = await self.call(lambda _: request, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    async def delete_records(self, tp: TopicPartition, offset: int) -> tuple[int, int]:
        """(error code, where the log starts now)."""
        partition = DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        topic = DeleteRecordsTopic(name=tp.topic, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=4_000)
        answer = await self.call(lambda _: request, DeleteRecordsResponse)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark


def _all_topics(version: int) -> Message:
    request = MetadataRequest(topics=None if version else [])
    if version >= 4:
        request.allow_auto_topic_creation = False
    return request


def _read(answer_class: type[M], frame: bytes, version: int) -> M:
    key = answer_class.API
    assert key is not None
    assert response_class(key) is answer_class
    _, position = read_response_header(APIS[key], version, frame)
    return decode(answer_class, frame, version, position)
