"""Produce requests from batches, and answers by partition. From version 13 on topics go by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.connection import Connection
from headwater.client.errors import UnsupportedVersion
from headwater.client.metadata import Topic
from headwater.client.producer.batches import Batch
from headwater.client.producer.lanes import Lane
from headwater.client.producer.lone import LoneRequest
from headwater.model import ZERO_ID, TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

Payload = tuple[Lane, Batch]

_BY_ID_SINCE = 13
_ZSTD_SINCE = 7


def produce_request(
    connection: Connection,
    payloads: Iterable[Payload],
    *,
    topics: Mapping[str, Topic],
    acks: int,
    timeout_ms: int,
) -> tuple[ProduceRequest, int]:
    """A request with one batch for each partition, and the version to send it in."""
    data: dict[str, TopicProduceData] = {}
    at_most = None
    for lane, batch in payloads:
        name, partition = lane.tp
        topic = data.get(name)
        if topic is None:
            known = topics.get(name)
            topic_id = ZERO_ID if known is None else known.topic_id
            if topic_id == ZERO_ID:
                at_most = _BY_ID_SINCE - 1
            topic = data[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        records = batch.outgoing.records
        assert records is not None
        topic.partition_data.append(
            PartitionProduceData(index=partition, records=memoryview(records))
        )
    version = connection.version(ApiKey.PRODUCE, at_most=at_most)
    if version is None:
        raise UnsupportedVersion(f"{connection!r} serves Produce in no version known here")
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(data.values()))
    return request, version


@dataclass(frozen=True, slots=True)
class Lone:
    """A request for one partition, made once and sent again and again with other records, as long
    as the topic is what it was: its leader, too."""

    connection: Connection
    topic: Topic | None
    prepared: LoneRequest


class Requests:
    """Makes the requests of one producer."""

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self._cluster = cluster
        self._acks = config.acks
        self._timeout_ms = config.request_timeout_ms
        self._needs_zstd = config.compression_type == "zstd"
        self._lone: dict[Lane, Lone] = {}

    def make(self, connection: Connection, payloads: list[Payload]) -> tuple[ProduceRequest, int]:
        """The request and its version."""
        if self._needs_zstd and (connection.version(ApiKey.PRODUCE) or 0) < _ZSTD_SINCE:
            raise UnsupportedVersion(f"{connection!r} is too old for compression_type='zstd'")
        return produce_request(
            connection,
            payloads,
            topics=self._cluster.metadata.topics,
            acks=self._acks,
            timeout_ms=self._timeout_ms,
        )

    def lone(self, lane: Lane) -> Lone | None:
        """The request for one partition, if it is made and can still be sent."""
        lone = self._lone.get(lane)
        if lone is None or not lone.connection.is_open:
            return None
        return lone if lone.topic is self._cluster.metadata.topics.get(lane.tp.topic) else None

    def make_lone(self, connection: Connection, lane: Lane, batch: Batch) -> Lone:
        request, version = self.make(connection, [(lane, batch)])
        prepared = LoneRequest(request, version, connection.client_id)
        topic = self._cluster.metadata.topics.get(lane.tp.topic)
        lone = self._lone[lane] = Lone(connection, topic, prepared)
        return lone


def only_result(answer: ProduceResponse) -> PartitionProduceResponse | None:
    """What the broker says to a request for a single partition."""
    for topic in answer.responses:
        for result in topic.partition_responses:
            return result
    return None


def results_of(
    answer: ProduceResponse, names: Mapping[bytes, str]
) -> dict[TopicPartition, PartitionProduceResponse]:
    """What the broker says, by partition."""
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.index): each
        for topic in answer.responses
        for each in topic.partition_responses
    }
