"""A plain client for tests and measurements: one blocking socket and the protocol's messages.

`Wire` sends any request in any version and reads the responses in the order in which they arrive.
The methods at its end are the few requests that most tests make, with defaults for what a test does
not care about.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from headwater import _core
from headwater.protocol import Message, decode
from headwater.protocol.apis import APIS, ApiKey, response_class
from headwater.protocol.frame import encode_request, read_response_header
from headwater.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

PATIENCE_SECONDS = 20.0

T = TypeVar("T")


class Closed(Exception):
    """The broker ended the connection."""


def newest(api: int) -> int:
    """The newest version that a node tells its clients of."""
    advertised = APIS[api].advertised
    assert advertised is not None
    return advertised[1]


def all_versions(api: int) -> list[int]:
    """Every version that both sides have messages for."""
    versions, advertised = APIS[api].versions, APIS[api].advertised
    assert versions is not None
    assert advertised is not None
    return list(range(max(versions[0], advertised[0]), min(versions[1], advertised[1]) + 1))


class Wire:
    """One connection."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str = "test",
        timeout: float = PATIENCE_SECONDS,
        source: str = "",
    ) -> None:
        """`source` is the address to connect from, if it matters."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection(
            (host.strip("[]"), int(port)), timeout, (source, 0) if source else None
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._correlation_id = 0
        self._sent: dict[int, tuple[int, int]] = {}
        self._topic_ids: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The answer to one request; the newest version unless told."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Message, version: int | None = None) -> int:
        api = type(request).API
        assert api is not None
        version = newest(api) if version is None else version
        self._correlation_id += 1
        self._sent[self._correlation_id] = (api, version)
        frame = encode_request(request, version, self._correlation_id, self.client_id)
        self.socket.sendall(frame)
        return self._correlation_id

    def receive(self) -> Any:
        return self.receive_answer()[1]

    def receive_answer(self) -> tuple[int, Any]:
        """The next answer, and which request it belongs to."""
        (size,) = struct.unpack(">i", self.read(4))
        data = self.read(size)
        (correlation_id,) = struct.unpack_from(">i", data)
        api, version = self._sent.pop(correlation_id)
        _, position = read_response_header(APIS[api], version, data)
        return correlation_id, decode(response_class(api), data, version, position)

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                chunk = self.socket.recv(min(count - len(data), 1 << 20))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed(f"{len(data)} of {count} bytes came")
            data += chunk
        return bytes(data)

    def wait_until_closed(self) -> None:
        """Passes when the broker ends the connection and has sent nothing more."""
        try:
            rest = self.socket.recv(1)
        except ConnectionResetError:
            rest = b""
        assert rest == b"", "expected the end of the connection, but more came"

    # The requests of most tests

    def api_versions(self, version: int | None = None) -> ApiVersionsResponse:
        answer: ApiVersionsResponse = self.ask(
            ApiVersionsRequest(client_software_name="test", client_software_version="1"), version
        )
        return answer

    def is_served(self) -> bool:
        return self.api_versions().error_code == 0

    def describe_cluster(self) -> DescribeClusterResponse:
        answer: DescribeClusterResponse = self.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False)
        )
        return answer

    def await_coordinator(self, group_id: str) -> None:
        """Waits until this node coordinates a group."""
        request = FindCoordinatorRequest(coordinator_keys=[group_id])
        until(
            lambda: self.ask(request).coordinators[0].error_code == 0,
            f"a coordinator for {group_id}",
        )

    def topic_id(self, topic: str) -> bytes:
        """Asks for the topic's metadata, which creates the topic where that is allowed, and waits
        until its partitions are served."""
        known = self._topic_ids.get(topic)
        if known is not None:
            return known
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

        def found() -> bytes | None:
            (about,) = self.ask(request).topics
            served = about.error_code == 0 and all(
                self.offset_at(topic, -1, partition=partition.partition_index).error_code == 0
                for partition in about.partitions
            )
            return about.topic_id if served else None

        return self._topic_ids.setdefault(topic, until(found, f"a leader for {topic}"))

    def note_topic_id(self, topic: str, topic_id: bytes) -> None:
        """Takes the id of a topic that this client may not be able to ask for."""
        self._topic_ids[topic] = topic_id

    def create_topic(self, topic: str, partitions: int = 1, **configs: str) -> bytes:
        """Creates it with these configs (`_` for `.`), waits for a leader, answers its id."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        (result,) = self.ask(request).topics
        assert result.error_code == 0, (result.error_code, result.error_message)
        return self.topic_id(topic)

    def produce(
        self,
        topic: str,
        records: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int | None = None,
    ) -> PartitionProduceResponse:
        request, version = self.produce_request(topic, records, partition, acks, version)
        answer: PartitionProduceResponse
        ((answer,),) = (t.partition_responses for t in self.ask(request, version).responses)
        return answer

    def produce_request(
        self,
        topic: str,
        records: bytes,
        partition: int = 0,
        acks: int = -1,
        version: int | None = None,
    ) -> tuple[ProduceRequest, int]:
        version = newest(ApiKey.PRODUCE) if version is None else version
        data = TopicProduceData(
            name=topic,
            topic_id=self.topic_id(topic) if version >= 13 else bytes(16),
            partition_data=[PartitionProduceData(index=partition, records=records)],
        )
        return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]), version

    def fetch_request(
        self,
        topic: str,
        offset: int = 0,
        *,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 10 << 20,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        version: int | None = None,
    ) -> tuple[FetchRequest, int]:
        version = newest(ApiKey.FETCH) if version is None else version
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[
                FetchTopic(
                    topic=topic,
                    topic_id=self.topic_id(topic) if version >= 13 else bytes(16),
                    partitions=[wanted],
                )
            ],
        )
        return request, version

    def fetch(self, topic: str, offset: int = 0, **options: Any) -> PartitionData:
        request, version = self.fetch_request(topic, offset, **options)
        return only_partition(self.ask(request, version))

    def values(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[bytes | None]:
        """Every value from an offset to the end."""
        found: list[bytes | None] = []
        while True:
            data = self.fetch(topic, offset, partition=partition)
            assert data.error_code == 0, data.error_code
            records = records_of(data, offset)
            if not records:
                assert offset >= data.high_watermark, "a fetch below the end brought nothing"
                return found
            found += [record.value for record in records]
            offset = records[-1].offset + 1

    def offset_at(
        self,
        topic: str,
        timestamp: int,
        *,
        partition: int = 0,
        version: int | None = None,
        isolation_level: int = 0,
    ) -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        answer: ListOffsetsPartitionResponse
        ((answer,),) = (topic.partitions for topic in self.ask(request, version).topics)
        return answer


def only_partition(response: FetchResponse) -> PartitionData:
    assert response.error_code == 0, response.error_code
    topics: Sequence[FetchableTopicResponse] = response.responses
    ((data,),) = (topic.partitions for topic in topics)
    return data


def records_of(data: PartitionData, from_offset: int = 0) -> list[_core.Record]:
    return _core.decode(data.records or b"", from_offset=from_offset)


class Plain(NamedTuple):
    """A record as a test writes it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


def batch(values: Iterable[bytes | Plain | None], **options: Any) -> bytes:
    """A record batch; options are those of the core's `encode`."""
    now_ms = int(time.time() * 1000)
    records = []
    for value in values:
        plain = value if isinstance(value, Plain) else Plain(value)
        timestamp = now_ms if plain.timestamp is None else plain.timestamp
        records.append((plain.key, plain.value, plain.headers, timestamp))
    return _core.encode(records, **options)


def until(look: Callable[[], T | None], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Looks again and again until there is an answer that is neither None nor False."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.005)
