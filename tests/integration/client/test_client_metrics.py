"""Metrics of clients at work and of clients that are stuck; the page names all of them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Literal

import pytest

from harness.wire import Wire, batch
from headwater import Admin, BufferFull, ClientClosed, Consumer, Producer, blocking
from headwater.client.consumer import ConsumedRecord
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import FakeBroker, one_topic, story

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


@pytest.fixture
def bootstrap(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap


@story
async def test_a_producer_measures_batches_requests_and_its_buffer(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    wire.create_topic(topic)
    async with Producer(bootstrap, linger_ms=1000) as producer:
        for _ in range(500):
            producer.submit(topic, bytes(100))
        queued = producer.metrics()
        await producer.flush()
        shown = producer.metrics()
    assert queued["buffer-available-bytes"] < queued["buffer-total-bytes"] - 50_000
    assert shown["buffer-available-bytes"] == shown["buffer-total-bytes"]
    assert shown["record-send-total"] == 500
    assert shown["records-per-request-avg"] == 500
    assert 50_000 < shown["batch-size-avg"] == shown["batch-size-max"] == shown["byte-total"]
    assert 0 < shown["request-latency-avg"] <= shown["request-latency-max"]
    assert shown["record-queue-time-max"] > 0
    assert shown["requests-in-flight"] == shown["batches-unsettled"] == 0
    assert shown["outgoing-byte-total"] > 50_000
    assert shown["connection-count"] == 1


@story
async def test_the_brokers_throttling_and_a_full_buffer_are_seen() -> None:
    answers = asyncio.Event()

    async def produce(request: ProduceRequest) -> ProduceResponse:
        await answers.wait()
        (topic,) = request.topic_data
        result = PartitionProduceResponse(index=0, base_offset=0)
        named = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=[result]
        )
        return ProduceResponse(responses=[named], throttle_time_ms=7)

    async with FakeBroker() as broker:
        broker.topics = [one_topic("t", leader=broker.node_id)]
        broker.answers[ApiKey.PRODUCE] = produce
        settings = {"buffer_memory": 2000, "max_block_ms": 100, "enable_idempotence": False}
        async with Producer(broker.bootstrap, **settings) as producer:  # type: ignore[arg-type]
            first = asyncio.create_task(producer.send("t", bytes(1500)))
            await asyncio.sleep(0)
            with pytest.raises(BufferFull):
                await producer.send("t", bytes(1500))
            stuck = producer.metrics()
            answers.set()
            await first
            shown = producer.metrics()
    assert stuck["requests-in-flight"] >= 1
    assert stuck["batches-unsettled"] == 1
    assert stuck["buffer-exhausted-total"] == stuck["bufferpool-wait-total"] == 1
    assert stuck["bufferpool-wait-time-ns-total"] >= 90e6
    assert shown["produce-throttle-time-max"] == 7


def test_a_stuck_blocking_producer_says_so_at_once() -> None:
    """It must not wait behind the records that are stuck themselves."""

    @story
    async def stuck() -> None:
        async with FakeBroker() as broker:
            broker.topics = [one_topic("t", leader=broker.node_id)]
            broker.answers[ApiKey.PRODUCE] = lambda _: None  # it never answers
            await asyncio.to_thread(_look_while_stuck, broker.bootstrap)

    stuck()


def _look_while_stuck(bootstrap: str) -> None:
    producer = blocking.Producer(
        bootstrap, buffer_memory=2000, max_block_ms=30_000, enable_idempotence=False
    )
    with producer:
        for _ in range(50):
            producer.submit("t", bytes(500))
        shown = producer.metrics()
        assert shown["record-send-total"] == 0
        with pytest.raises(ClientClosed, match="50 records"):
            producer.close(timeout_ms=0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@story
async def test_a_consumer_measures_lag_rebalances_and_polls(
    bootstrap: str, topic: str, wire: Wire, protocol: Literal["classic", "consumer"]
) -> None:
    wire.create_topic(topic, 2)
    wire.produce(topic, batch([b"%d" % n for n in range(10)]), partition=1)
    consumer = Consumer(
        bootstrap,
        group=topic,
        topics=[topic],
        group_protocol=protocol,
        auto_offset_reset="earliest",
    )
    async with consumer:
        assert consumer.metrics()["last-poll-seconds-ago"] == -1
        records: list[ConsumedRecord] = []
        while len(records) < 4:
            records += await consumer.poll(records_max=4 - len(records))
        await consumer.commit()
        shown = consumer.metrics()
        await consumer.poll(timeout_ms=0)
        later = consumer.metrics()
    assert shown["records-consumed-total"] == 4
    assert shown[f'records-lag{{topic="{topic}",partition="1"}}'] == 6
    assert shown[f'records-lead{{topic="{topic}",partition="1"}}'] == 4
    assert shown["records-lag-max"] == 6
    assert shown["rebalance-total"] >= 1
    assert 0 < shown["rebalance-latency-max"] <= shown["rebalance-latency-total"]
    assert 0 <= shown["last-rebalance-seconds-ago"] < 60
    assert shown["assigned-partitions"] == 2
    assert shown["commit-total"] >= 1
    assert 0 < shown["commit-latency-avg"] <= shown["commit-latency-max"]
    assert 0 < shown["fetch-latency-avg"] <= shown["fetch-latency-max"]
    assert shown["fetch-size-max"] > 0
    assert shown["records-per-request-avg"] > 0
    assert 0 <= shown["last-poll-seconds-ago"] < 60
    assert later["time-between-poll-max"] > 0


@story
async def test_the_page_names_every_metric_and_no_other(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    wire.create_topic(topic)
    wire.produce(topic, batch([b"x"]))
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        consumer = Consumer(bootstrap, topics=[topic], auto_offset_reset="earliest")
        async with consumer:
            assert await consumer.poll(timeout_ms=30_000)
            every = set(admin.metrics())
            shown = {
                "Every client": every,
                "The producer": set(producer.metrics()) - every,
                "The consumer": {name.partition("{")[0] for name in consumer.metrics()} - every,
            }
    _, *sections = PAGE.read_text().split("\n## ")
    named = {}
    for section in sections:
        title, _, text = section.partition("\n")
        firsts = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
        if firsts:
            named[title] = {name for first in firsts for name in re.findall(r"`([a-z-]+)`", first)}
    assert named == shown
