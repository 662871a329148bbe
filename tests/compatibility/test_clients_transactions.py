"""Transactional producers of other makers: commits, aborts, offsets of groups, fencing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import KafkaError as PythonKafkaError
from kafka.structs import OffsetAndMetadata

from headwater.testing import EmbeddedBroker

PATIENCE = 60.0


class Transactional(Protocol):
    """A producer of any maker."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes) -> None: ...

    def send_offset(self, group: str, topic: str, offset: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Librdkafka:
    fenced = (KafkaException,)

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        settings = {"bootstrap.servers": bootstrap}
        self._producer = Producer(settings | {"transactional.id": transactional_id})
        self._consumer = Consumer(settings | {"group.id": f"{transactional_id}-group"})
        self._producer.init_transactions(PATIENCE)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self._producer.produce(topic, value, partition=0)
        self._producer.flush(PATIENCE)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], self._consumer.consumer_group_metadata(), PATIENCE
        )

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE)

    def abort(self) -> None:
        self._producer.abort_transaction(PATIENCE)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    fenced = (PythonKafkaError,)

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, acks="all"
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes) -> None:
        self._producer.send(topic, value, partition=0).get(PATIENCE)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        at = PythonTopicPartition(topic, 0)
        self._producer.send_offsets_to_transaction({at: OffsetAndMetadata(offset, "", -1)}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=5)


class Aiokafka:
    fenced = (ProducerFenced,)

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()

        async def make() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id
            )
            await producer.start()
            return producer

        self._producer = self._run(make())

    def _run(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=0))

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {AioTopicPartition(topic, 0): offset}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.close()


MAKERS: tuple[Callable[[str, str], Any], ...] = (Librdkafka, KafkaPython, Aiokafka)
EACH = pytest.mark.parametrize("maker", MAKERS, ids=["librdkafka", "kafka-python", "aiokafka"])


def committed_records(broker: EmbeddedBroker, topic: str, last: bytes) -> list[bytes]:
    """Returns what a reader of committed records gets up to this one."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + PATIENCE
        while last not in found:
            assert time.monotonic() < deadline, f"only {found} came"
            record = consumer.poll(0.2)
            if record is not None and not record.error():
                value = record.value()
                assert isinstance(value, bytes)
                found.append(value)
    finally:
        consumer.close()
    return found


def committed_offset(broker: EmbeddedBroker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE)
        offset: int = found.offset
        return offset
    finally:
        consumer.close()


@EACH
def test_readers_see_what_was_committed(
    shared_broker: EmbeddedBroker, topic: str, maker: Callable[[str, str], Transactional]
) -> None:
    producer = maker(shared_broker.bootstrap, f"{topic}-id")
    for number in range(10):
        producer.begin()
        for each in range(3):
            producer.send(topic, b"%d.%d" % (number, each))
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
    producer.close()
    expected = [b"%d.%d" % (n, each) for n in range(10) if n % 3 != 1 for each in range(3)]
    assert committed_records(shared_broker, topic, expected[-1]) == expected


@EACH
def test_offsets_are_committed_with_the_records(
    shared_broker: EmbeddedBroker, topic: str, maker: Callable[[str, str], Transactional]
) -> None:
    producer = maker(shared_broker.bootstrap, f"{topic}-id")
    group = f"{topic}-id-group"
    producer.begin()
    producer.send(topic, b"first")
    producer.send_offset(group, topic, 5)
    producer.commit()
    assert committed_offset(shared_broker, group, topic) == 5
    producer.begin()
    producer.send(topic, b"second")
    producer.send_offset(group, topic, 9)
    producer.abort()
    assert committed_offset(shared_broker, group, topic) == 5
    producer.close()


@EACH
def test_a_second_instance_fences_the_first(
    shared_broker: EmbeddedBroker, topic: str, maker: Any
) -> None:
    first = maker(shared_broker.bootstrap, f"{topic}-id")
    first.begin()
    first.send(topic, b"lost")
    second = maker(shared_broker.bootstrap, f"{topic}-id")
    second.begin()
    second.send(topic, b"kept")
    second.commit()
    with pytest.raises(maker.fenced):
        first.commit()
    assert committed_records(shared_broker, topic, b"kept") == [b"kept"]
    second.close()
    if maker is not Aiokafka:  # which waits for a transaction that it cannot end
        first.close()
