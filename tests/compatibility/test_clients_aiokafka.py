"""aiokafka: asyncio services."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError

from headwater.testing import EmbeddedBroker

PATIENCE = 30.0
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


async def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
    await consumer.start()
    try:
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.seek(at, 0)
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_records_come_back_in_order(
    shared_broker: EmbeddedBroker, topic: str, codec: str | None, idempotent: bool
) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=shared_broker.bootstrap,
            compression_type=codec,
            enable_idempotence=idempotent,
        )
        await producer.start()
        try:
            waiting = [await producer.send(topic, b"%d" % n * 10) for n in range(200)]
            offsets = [(await sent).offset for sent in waiting]
        finally:
            await producer.stop()
        assert offsets == list(range(200))
        got = await consume(shared_broker, topic, 200)
        assert [record.value for record in got] == [b"%d" % n * 10 for n in range(200)]

    run(scenario())


def test_nulls_headers_and_timestamps_come_back(shared_broker: EmbeddedBroker, topic: str) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=shared_broker.bootstrap)
        await producer.start()
        headers = [("trace", b"1"), ("trace", b"2")]
        try:
            await producer.send_and_wait(topic, None, key=b"tombstone")
            await producer.send_and_wait(topic, b"v", headers=headers, timestamp_ms=1_000_000)
        finally:
            await producer.stop()
        tombstone, full = await consume(shared_broker, topic, 2)
        assert (tombstone.key, tombstone.value) == (b"tombstone", None)
        assert (full.key, list(full.headers), full.timestamp) == (None, headers, 1_000_000)

    run(scenario())


def test_a_record_that_is_too_large_is_refused(shared_broker: EmbeddedBroker, topic: str) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=shared_broker.bootstrap, max_request_size=10_000_000
        )
        await producer.start()
        try:
            await producer.send_and_wait(topic, bytes(1_000_000))
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(2_000_000))
        finally:
            await producer.stop()

    run(scenario())


def test_ends_and_offsets_for_times(shared_broker: EmbeddedBroker, topic: str) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=shared_broker.bootstrap)
        await producer.start()
        try:
            for moment in (1_000_000, 2_000_000, 3_000_000):
                await producer.send_and_wait(topic, b"x", timestamp_ms=moment)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=shared_broker.bootstrap)
        await consumer.start()
        try:
            at = TopicPartition(topic, 0)
            assert await consumer.beginning_offsets([at]) == {at: 0}
            assert await consumer.end_offsets([at]) == {at: 3}
            found = (await consumer.offsets_for_times({at: 1_500_000}))[at]
            assert (found.offset, found.timestamp) == (1, 2_000_000)
        finally:
            await consumer.stop()

    run(scenario())


def test_topics_and_configs_are_administered(shared_broker: EmbeddedBroker, topic: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=shared_broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 3, 1, topic_configs={"retention.ms": "1"})])
            (about,) = await admin.describe_topics([topic])
            assert len(about["partitions"]) == 3
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (answer,) = await admin.describe_configs([resource])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert values["retention.ms"] == "1"
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    run(scenario())
