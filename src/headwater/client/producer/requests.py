"""Builds produce requests and reads their responses. From version 13 on topics go by id.

Consecutive requests of single records for one partition differ in the records and a few numbers,
and so do their responses while all is well. `SingleRequest` encodes both once and cuts them where
they differ; any other response is left to the general decoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct

from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.connection import Connection
from headwater.client.errors import UnsupportedVersion
from headwater.client.metadata import Topic
from headwater.client.producer.accumulator import Batch, PartitionQueue
from headwater.client.requests.transactions import PRODUCE_V2
from headwater.model import ZERO_ID, TopicPartition
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.encoding import write_varint
from headwater.protocol.frame import encode_request, encode_response, is_flexible
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

Payload = tuple[PartitionQueue, Batch]

_BY_ID_SINCE = 13
_ZSTD_SINCE = 7

# Larger records are sent as a buffer of their own instead of being copied.
SINGLE_BYTES_MAX = 4096

_SIZE = Struct(">i")
_START = Struct(">ihhi")  # size, api key, version, correlation id
_PLACE = Struct(">qq")  # base offset, log append time
# Stands for what changes. The last occurrence counts, for names and ids come first.
_MARK = bytes(range(1, 9))
_MARK_NUMBER = int.from_bytes(_MARK)
_LOG_START_SINCE = 5

Appended = tuple[int, int]  # base offset and log append time


def produce_request(
    connection: Connection,
    payloads: Iterable[Payload],
    *,
    topics: Mapping[str, Topic],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
    version_max: int | None = None,
) -> tuple[ProduceRequest, int]:
    """Returns a request with one batch for each partition, and its version."""
    data: dict[str, TopicProduceData] = {}
    at_most = version_max
    for queue, batch in payloads:
        name, partition = queue.tp
        topic = data.get(name)
        if topic is None:
            known = topics.get(name)
            topic_id = ZERO_ID if known is None else known.topic_id
            if topic_id == ZERO_ID:
                at_most = min(at_most or _BY_ID_SINCE, _BY_ID_SINCE - 1)
            topic = data[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        records = batch.outgoing.records
        assert records is not None
        topic.partition_data.append(
            PartitionProduceData(index=partition, records=memoryview(records))
        )
    version = connection.version(ApiKey.PRODUCE, at_most=at_most)
    if version is None:
        raise UnsupportedVersion(f"{connection!r} serves Produce in no version known here")
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(data.values()),
    )
    return request, version


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request for one partition, reused with other records as long as the topic's metadata and
    the connection stay the same."""

    connection: Connection
    topic: Topic | None
    single: SingleRequest


class Requests:
    """Builds the requests of one producer."""

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self._cluster = cluster
        self._acks = config.acks
        self._timeout_ms = config.request_timeout_ms
        self._transactional_id = config.transactional_id
        self._version_max: int | None = None
        self._needs_zstd = config.compression_type == "zstd"
        self._singles: dict[PartitionQueue, PreparedRequest] = {}

    def set_generation(self, *, uses_v2: bool) -> None:
        """Sets the generation of transactions, which brokers tell by the version of a request."""
        version_max = None if uses_v2 else PRODUCE_V2 - 1
        if version_max != self._version_max:
            self._version_max = version_max
            self._singles.clear()

    def make(self, connection: Connection, payloads: list[Payload]) -> tuple[ProduceRequest, int]:
        """Returns the request and its version."""
        if self._needs_zstd and (connection.version(ApiKey.PRODUCE) or 0) < _ZSTD_SINCE:
            raise UnsupportedVersion(f"{connection!r} is too old for compression_type='zstd'")
        return produce_request(
            connection,
            payloads,
            topics=self._cluster.metadata.topics,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            transactional_id=self._transactional_id,
            version_max=self._version_max,
        )

    def prepared(self, queue: PartitionQueue) -> PreparedRequest | None:
        """Returns the prepared request of a partition, if there is one that can still be sent."""
        prepared = self._singles.get(queue)
        if prepared is None or not prepared.connection.is_open:
            return None
        return (
            prepared
            if prepared.topic is self._cluster.metadata.topics.get(queue.tp.topic)
            else None
        )

    def prepare_single(
        self, connection: Connection, queue: PartitionQueue, batch: Batch
    ) -> PreparedRequest:
        request, version = self.make(connection, [(queue, batch)])
        single = SingleRequest(request, version, connection.client_id)
        topic = self._cluster.metadata.topics.get(queue.tp.topic)
        prepared = self._singles[queue] = PreparedRequest(connection, topic, single)
        return prepared


def only_result(answer: ProduceResponse) -> PartitionProduceResponse | None:
    """Returns the result of a request for a single partition."""
    for topic in answer.responses:
        for result in topic.partition_responses:
            return result
    return None


def results_of(
    answer: ProduceResponse, names: Mapping[bytes, str]
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Returns the results by partition."""
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.index): each
        for topic in answer.responses
        for each in topic.partition_responses
    }


class SingleRequest:
    """A request for one partition in one version, in which only few bytes change."""

    api = APIS[ApiKey.PRODUCE]

    def __init__(self, request: ProduceRequest, version: int, client_id: str) -> None:
        """`request` has one topic with one partition; its records do not matter."""
        self.version = version
        self._flexible = is_flexible(ApiKey.PRODUCE, version)
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        kept, data.records = data.records, _MARK
        written = bytes(encode_request(request, version, 0, client_id))
        data.records = kept
        at = written.rindex(_MARK)
        self._head = written[_START.size : at - (1 if self._flexible else _SIZE.size)]
        self._tail = written[at + len(_MARK) :]
        self._fixed_bytes = len(self._head) + len(self._tail) + _START.size - _SIZE.size

        result = PartitionProduceResponse(
            index=data.index,
            base_offset=_MARK_NUMBER,
            log_append_time_ms=_MARK_NUMBER,
            log_start_offset=_MARK_NUMBER,
        )
        named = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=[result]
        )
        answer = bytes(encode_response(ProduceResponse(responses=[named]), version, 0))
        answer = answer[_SIZE.size :]
        changing = _PLACE.size + (len(_MARK) if version >= _LOG_START_SINCE else 0)
        end = answer.rindex(_MARK) + len(_MARK)
        self._at = end - changing
        self._before = answer[_SIZE.size : self._at]
        self._behind = answer[end:]
        self._answer_bytes = len(answer)

    def frame(self, correlation_id: int, records: memoryview) -> bytes:
        """Returns the whole request, beginning with its size."""
        count = len(records)
        if self._flexible:
            size = bytearray()
            write_varint(size, count + 1)
        else:
            size = bytearray(_SIZE.pack(count))
        start = _START.pack(
            self._fixed_bytes + len(size) + count, ApiKey.PRODUCE, self.version, correlation_id
        )
        return b"".join((start, self._head, size, records, self._tail))

    def read(self, frame: bytes) -> Appended | None:
        """Returns where the records are stored; None if the response says anything else."""
        if (
            len(frame) == self._answer_bytes
            and frame.startswith(self._before, _SIZE.size)
            and frame.endswith(self._behind)
        ):
            return _PLACE.unpack_from(frame, self._at)
        return None
