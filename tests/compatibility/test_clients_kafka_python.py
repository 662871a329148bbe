"""kafka-python: pure Python, and many scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from headwater.testing import EmbeddedBroker

PATIENCE = 30.0


@pytest.fixture
def admin(shared_broker: EmbeddedBroker) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=shared_broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def make_producer(shared_broker: EmbeddedBroker) -> Iterator[Any]:
    made: list[Any] = []

    def make(**options: Any) -> Any:
        made.append(KafkaProducer(bootstrap_servers=shared_broker.bootstrap, **options))
        return made[-1]

    yield make
    for producer in made:
        producer.close(timeout=5)


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    try:
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.seek(at, 0)
        got: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} records came"
            got += consumer.poll(timeout_ms=200).get(at, [])
        return got
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_in_order(
    shared_broker: EmbeddedBroker, make_producer: Any, topic: str, codec: str | None
) -> None:
    pytest.importorskip(
        {"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"}.get(codec or "", "kafka")
    )
    producer = make_producer(compression_type=codec, linger_ms=5)
    sent = [producer.send(topic, b"%d" % n * 10, key=b"k%d" % n) for n in range(200)]
    assert [future.get(PATIENCE).offset for future in sent] == list(range(200))
    got = consume(shared_broker, topic, 200)
    assert [(record.offset, record.key, record.value) for record in got] == [
        (n, b"k%d" % n, b"%d" % n * 10) for n in range(200)
    ]


def test_nulls_headers_and_timestamps_come_back(
    shared_broker: EmbeddedBroker, make_producer: Any, topic: str
) -> None:
    producer = make_producer()
    producer.send(topic, None, key=b"tombstone").get(PATIENCE)
    headers = [("trace", b"1"), ("trace", b"2")]
    producer.send(topic, b"v", headers=headers, timestamp_ms=1_000_000).get(PATIENCE)
    tombstone, full = consume(shared_broker, topic, 2)
    assert (tombstone.key, tombstone.value) == (b"tombstone", None)
    assert (full.key, list(full.headers), full.timestamp) == (None, headers, 1_000_000)


def test_large_records_pass_and_larger_ones_are_refused(
    shared_broker: EmbeddedBroker, make_producer: Any, topic: str
) -> None:
    producer = make_producer(max_request_size=10_000_000)
    large = bytes(range(256)) * 4000
    producer.send(topic, large).get(PATIENCE)
    assert consume(shared_broker, topic, 1)[0].value == large
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, bytes(2_000_000)).get(PATIENCE)


def test_ends_and_offsets_for_times(
    shared_broker: EmbeddedBroker, make_producer: Any, topic: str
) -> None:
    producer = make_producer()
    for moment in (1_000_000, 2_000_000, 3_000_000):
        producer.send(topic, b"x", timestamp_ms=moment).get(PATIENCE)
    consumer = KafkaConsumer(bootstrap_servers=shared_broker.bootstrap)
    try:
        at = TopicPartition(topic, 0)
        assert consumer.beginning_offsets([at]) == {at: 0}
        assert consumer.end_offsets([at]) == {at: 3}
        found = consumer.offsets_for_times({at: 1_500_000})[at]
        assert (found.offset, found.timestamp) == (1, 2_000_000)
        assert consumer.offsets_for_times({at: 3_000_001}) == {at: None}
    finally:
        consumer.close()


def test_topics_are_created_described_and_deleted(admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, 1)])
    (about,) = admin.describe_topics([topic])
    assert len(about["partitions"]) == 2
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 2, 1)])
    admin.create_partitions({topic: NewPartitions(4)})
    (about,) = admin.describe_topics([topic])
    assert len(about["partitions"]) == 4
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_configs_are_described_and_altered(admin: Any, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "3600000"})])

    def retention() -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        shown = str(admin.describe_configs([resource]))
        return "3600000" if "3600000" in shown else "7200000" if "7200000" in shown else shown

    assert retention() == "3600000"
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "7200000"})
    admin.alter_configs([resource])
    assert retention() == "7200000"
