"""Compacted topics as foreign clients see them: gaps in the offsets, the last value of each key."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as At
from kafka.admin import NewTopic as Wanted

from harness.wire import until
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker

SETTINGS = {"log.cleaner.backoff.ms": "50"}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.index.bytes": "96",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
KEYS = [b"a", b"b", b"c", b"gone"]


def rows(count: int) -> list[tuple[bytes, bytes | None]]:
    """All keys in turn; the one that goes is deleted in the middle."""
    written: list[tuple[bytes, bytes | None]] = []
    for number in range(count):
        key = KEYS[number % len(KEYS)]
        if key != b"gone" or number < count // 2:
            written.append((key, b"%d" % number))
        elif (key, None) not in written:
            written.append((key, None))
    return written


def check(found: list[tuple[int, bytes, bytes | None]], written: list[Any]) -> bool:
    """Returns whether compaction is done; asserts that nothing is wrong meanwhile."""
    assert all(written[offset] == (key, value) for offset, key, value in found)
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    last = {key: value for _, key, value in found}
    assert {key: value for key, value in last.items() if value is not None} == {
        key: value for key, value in dict(written).items() if value is not None
    }
    return len(found) < len(written) // 3 and b"gone" not in last


def read_with_kafka_python(broker: EmbeddedBroker, topic: str) -> list[tuple[int, bytes, Any]]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, consumer_timeout_ms=10_000
    )
    try:
        at = At(topic, 0)
        consumer.assign([at])
        consumer.seek(at, 0)
        (end,) = consumer.end_offsets([at]).values()
        found: list[tuple[int, bytes, Any]] = []
        while consumer.position(at) < end:
            records = consumer.poll(timeout_ms=200).get(at, [])
            found += [(record.offset, record.key, record.value) for record in records]
        return found
    finally:
        consumer.close()


def test_kafka_python_reads_a_compacted_topic(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker(SETTINGS)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([Wanted(topic, 1, 1, topic_configs=CONFIG)])
    admin.close()
    written = rows(120)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
    for key, value in written:
        producer.send(topic, key=key, value=value).get(10)

    def is_compacted() -> bool:
        # A deletion goes in the round after the one that has seen it, and a round needs a reason.
        written.append((b"a", b"more"))
        producer.send(topic, key=b"a", value=b"more").get(10)
        return check(read_with_kafka_python(broker, topic), written)

    until(is_compacted, "compaction")
    producer.close()


def read_with_confluent(broker: EmbeddedBroker, topic: str) -> list[tuple[int, bytes, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[int, bytes, Any]] = []
        while True:
            message = consumer.poll(10.0)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def test_confluent_reads_a_compacted_topic(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker(SETTINGS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=CONFIG)])[topic].result(10)
    written = rows(120)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for key, value in written:
        producer.produce(topic, value, key=key, partition=0)
        assert producer.flush(10) == 0

    def is_compacted() -> bool:
        written.append((b"a", b"more"))
        producer.produce(topic, b"more", key=b"a", partition=0)
        assert producer.flush(10) == 0
        return check(read_with_confluent(broker, topic), written)

    until(is_compacted, "compaction")
