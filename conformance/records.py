"""Records that are sent and read back, and the reader that judges: librdkafka by partition."""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PATIENCE = 30.0


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def sample_values(codec: str, count: int = 300) -> list[bytes]:
    """Values that compress and values that are small, empty or odd, in one list."""
    values = [f"{codec} {number} ".encode() * (number % 40) for number in range(count)]
    return [*values, b"", bytes(range(256)), "grüße, 世界".encode()]


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(_PATIENCE)


def produce(
    bootstrap: str, topic: str, codec: str, values: list[bytes], partition: int = 0
) -> None:
    """Sends with keys and headers, idempotently, and asks for every acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 2,
        }
    )
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=f"key {number}" if number % 3 else None,
            partition=partition,
            headers=[("number", str(number).encode()), ("nothing", None)],
            on_delivery=delivered,
        )
        producer.poll(0)
    left = producer.flush(_PATIENCE)
    assert (left, failures) == (0, []), f"{left} not acknowledged, refused: {failures[:3]}"


def read_all(bootstrap: str, topic: str) -> list[Seen]:
    """Everything a topic holds, by partition and offset, without a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        seen: list[Seen] = []
        for partition in sorted(consumer.list_topics(topic, _PATIENCE).topics[topic].partitions):
            where = TopicPartition(topic, partition)
            low, high = _watermarks(consumer, where)
            consumer.assign([TopicPartition(topic, partition, low)])
            position = low
            while position < high:
                # It waits until it has as many as it was asked for, so never ask for more.
                messages = consumer.consume(min(1000, high - position), timeout=_PATIENCE)
                assert messages, f"{topic}-{partition} ends at {position}, not at {high}"
                for message in messages:
                    assert message.error() is None, message.error()
                    seen.append(_seen(message))
                position = messages[-1].offset() + 1
        return seen
    finally:
        consumer.close()


def read_to_end(bootstrap: str, topic: str) -> list[Seen]:
    """All of partition 0, whose offsets may have gaps: up to where the client says it ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    try:
        low, _ = _watermarks(consumer, TopicPartition(topic, 0))
        consumer.assign([TopicPartition(topic, 0, low)])
        seen: list[Seen] = []
        while True:
            message = consumer.poll(_PATIENCE)
            assert message is not None, f"{topic} has no end after {len(seen)} records"
            error = message.error()
            if error is None:
                seen.append(_seen(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return seen
            else:
                raise AssertionError(str(error))
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, where: TopicPartition) -> tuple[int, int]:
    """Asks again while a broker that has just started has not opened the partition yet."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            low, high = consumer.get_watermark_offsets(where, _PATIENCE)
        except KafkaException as refused:
            not_yet = refused.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not not_yet or time.monotonic() > deadline:
                raise
        else:
            return low, high


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    return [record.value or b"" for record in read_all(bootstrap, topic)]


def _seen(message: object) -> Seen:
    from confluent_kafka import Message

    assert isinstance(message, Message)
    return Seen(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
