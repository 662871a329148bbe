"""Other people's consumers in groups: they share partitions, and go on where the group left off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer

from harness.group_storm import STORM_SETTINGS
from harness.wire import Wire, batch
from headwater.testing import EmbeddedBroker

PATIENCE = 30.0
PARTITIONS = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    quick = {"group.initial.rebalance.delay.ms": "0", **STORM_SETTINGS}
    with EmbeddedBroker(quick) as made:
        yield made


@pytest.fixture
def values(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    """Returns the values of a topic, over four partitions."""
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            mine = [b"%d-%d" % (partition, number) for number in range(25)]
            assert wire.produce(topic, batch(mine), partition=partition).error_code == 0
    return sorted(b"%d-%d" % (p, number) for p in range(PARTITIONS) for number in range(25))


def librdkafka(broker: EmbeddedBroker, group: str, protocol: str, **config: Any) -> Any:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


def drain(
    consumers: list[Any], poll: Callable[[Any], list[bytes]], done: Callable[[], bool]
) -> list[bytes]:
    """Polls until all is read; a member without commits reads from the start again when the group
    rebalances, so records are counted once."""
    read: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while not (done() and len(set(read)) >= 100):
        assert time.monotonic() < deadline, f"{len(set(read))} records came"
        for consumer in consumers:
            read += poll(consumer)
    return read


def poll_librdkafka(consumer: Any) -> list[bytes]:
    messages = consumer.consume(50, timeout=0.05)
    assert all(each.error() is None for each in messages), [each.error() for each in messages]
    if messages:
        consumer.commit(asynchronous=False)
    return [each.value() for each in messages]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_reads_and_goes_on_in_a_group(
    broker: EmbeddedBroker, topic: str, values: list[bytes], protocol: str
) -> None:
    first = librdkafka(broker, topic, protocol)
    first.subscribe([topic])
    assert sorted(drain([first], poll_librdkafka, lambda: True)) == values
    first.close()
    with Wire(broker.bootstrap) as wire:
        wire.produce(topic, batch([b"later"]), partition=2)
    second = librdkafka(broker, topic, protocol)
    second.subscribe([topic])
    message = second.poll(PATIENCE)
    assert message.value() == b"later"
    second.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_librdkafka_members_share_the_partitions(
    broker: EmbeddedBroker, topic: str, values: list[bytes], protocol: str
) -> None:
    pair = [librdkafka(broker, topic, protocol) for _ in range(2)]
    for consumer in pair:
        consumer.subscribe([topic])
    read = drain(pair, poll_librdkafka, lambda: all(len(c.assignment()) == 2 for c in pair))
    assert sorted(set(read)) == values
    owned = [each.partition for consumer in pair for each in consumer.assignment()]
    assert sorted(owned) == list(range(PARTITIONS))
    pair[0].close()
    pair[1].close()


def test_a_static_member_comes_back_to_its_partitions(
    broker: EmbeddedBroker, topic: str, values: list[bytes]
) -> None:
    config = {"group.instance.id": "one", "session.timeout.ms": 10_000}
    first = librdkafka(broker, topic, "classic", **config)
    first.subscribe([topic])
    drain([first], poll_librdkafka, lambda: True)
    before = sorted(each.partition for each in first.assignment())
    first.close()  # a static member does not leave
    again = librdkafka(broker, topic, "classic", **config)
    again.subscribe([topic])
    deadline = time.monotonic() + PATIENCE
    while not again.assignment():
        assert time.monotonic() < deadline
        assert poll_librdkafka(again) == []
    assert sorted(each.partition for each in again.assignment()) == before
    again.close()


def test_two_kafka_python_members_share_the_partitions(
    broker: EmbeddedBroker, topic: str, values: list[bytes]
) -> None:
    pair = [
        KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        for _ in range(2)
    ]
    for consumer in pair:
        consumer.topics()  # why: harness/group_member.py

    def poll(consumer: Any) -> list[bytes]:
        return [each.value for batch in consumer.poll(50).values() for each in batch]

    read = drain(pair, poll, lambda: all(len(c.assignment()) == 2 for c in pair))
    assert sorted(set(read)) == values
    for consumer in pair:
        consumer.close()


def test_an_aiokafka_member_reads_and_commits(
    broker: EmbeddedBroker, topic: str, values: list[bytes]
) -> None:
    async def read_all() -> tuple[list[bytes], int | None]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer, asyncio.timeout(PATIENCE):
            read = [(await consumer.getone()).value for _ in range(100)]
            await consumer.commit()
            return sorted(read), await consumer.committed(TopicPartition(topic, 3))

    assert asyncio.run(read_all()) == (values, 25)


def test_members_of_different_makers_share_a_group(
    broker: EmbeddedBroker, topic: str, values: list[bytes]
) -> None:
    one = librdkafka(broker, topic, "classic", **{"heartbeat.interval.ms": 300})
    one.subscribe([topic])
    other = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
    )
    other.topics()  # why: harness/group_member.py

    def poll(consumer: Any) -> list[bytes]:
        if consumer is one:
            return [each.value() for each in one.consume(50, timeout=0.05) if not each.error()]
        return [each.value for batch in other.poll(50).values() for each in batch]

    def shared() -> bool:
        return len(one.assignment()) == 2 and len(other.assignment()) == 2

    assert sorted(set(drain([one, other], poll, shared))) == values
    one.close()
    other.close()
