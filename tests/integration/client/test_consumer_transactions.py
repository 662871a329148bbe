"""Reading what librdkafka wrote in transactions; for a broker that serves them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from confluent_kafka import Producer

from headwater import Consumer, TopicPartition
from headwater.client.consumer import ConsumedRecord
from tests.conftest import AnotherBroker
from tests.fake_broker import story
from tests.wire import Wire

pytestmark = pytest.mark.skipif(
    "HEADWATER_TEST_BOOTSTRAP" not in os.environ, reason="a node has no transactions yet"
)


@story
async def test_only_what_was_committed_is_read(
    shared_broker: AnotherBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    tp = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": shared_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        for word in ("a", "b"):
            producer.produce(topic, f"{number}{word}".encode(), partition=0)
        producer.flush(20)  # an abort drops what is not sent yet
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(20)

    async with Consumer(
        shared_broker.bootstrap,
        topics=[topic],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        seen: list[ConsumedRecord] = []
        while len(seen) < 6:
            seen += await consumer.poll(10_000, records_max=4)
        assert [r.value for r in seen] == [b"0a", b"0b", b"2a", b"2b", b"4a", b"4b"]
        assert await consumer.poll(300) == []
        (end,) = (await consumer.end_offsets(tp)).values()
        assert end == 18
        assert await consumer.position(tp) == 18
        assert consumer.lag(tp) == 0
        await consumer.seek_to_beginning()
        rows: list[dict[str, Any]] = []
        while len(rows) < 6:
            rows += (await consumer.poll_arrow(rows_max=4, timeout_ms=10_000)).to_pylist()
        assert [row["offset"] for row in rows] == [0, 1, 6, 7, 12, 13]
        producer.commit_transaction(20)
        (last,) = await consumer.poll(10_000)
        assert last.value == b"open"

    async with Consumer(
        shared_broker.bootstrap, topics=[topic], auto_offset_reset="earliest"
    ) as consumer:
        values: list[bytes] = []
        while len(values) < 13:
            values += [record.value for record in await consumer.poll(10_000)]
        assert values[2:4] == [b"1a", b"1b"]
