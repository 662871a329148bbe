"""Our own clients against Apache Kafka: they must not need our broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from conformance.records import CODECS, produce, read_all, sample_values
from harness.nodes import Kafka, Node
from harness.record_checker import anomalies
from harness.soak import soak
from headwater import Admin, ConsumedRecord, Consumer, Producer, TopicPartition

PROTOCOLS: tuple[Literal["classic", "consumer"], ...] = ("classic", "consumer")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[str]:
    settings = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    node = Node(Kafka(jars), tmp_path_factory.mktemp("kafka"), settings).start()
    yield node.bootstrap
    node.stop()
    node.remove()


async def _create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=partitions)


@pytest.mark.parametrize("codec", CODECS)
def test_what_our_producer_sends_to_kafka_librdkafka_reads(
    kafka: str, topic: str, codec: str
) -> None:
    values = sample_values(codec)

    async def send() -> None:
        await _create(kafka, topic)
        async with Producer(kafka, config={"compression.type": codec}) as producer:
            for number, value in enumerate(values):
                headers = {"number": str(number), "nothing": None}
                producer.submit(topic, key=f"key {number}", value=value, headers=headers)
            await producer.flush()

    asyncio.run(send())
    seen = read_all(kafka, topic)
    assert [record.value for record in seen] == values
    assert [record.offset for record in seen] == list(range(len(values)))
    assert seen[1].key == b"key 1"
    assert seen[1].headers == (("number", b"1"), ("nothing", None))


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_sends_to_kafka_our_consumer_reads_as_records_and_as_a_table(
    kafka: str, topic: str, codec: str
) -> None:
    values = sample_values(codec)
    asyncio.run(_create(kafka, topic))
    produce(kafka, topic, codec, values)

    async def read() -> tuple[list[bytes | None], list[bytes | None]]:
        options = {"auto.offset.reset": "earliest"}
        async with Consumer(kafka, topics=[topic], config=options) as consumer:
            records: list[bytes | None] = []
            while len(records) < len(values):
                records += [each.value for each in await consumer.poll(timeout_ms=5000)]
            await consumer.seek_to_beginning()
            column: list[bytes | None] = []
            while len(column) < len(values):
                table = await consumer.poll_arrow(timeout_ms=5000)
                column += table.column("value").to_pylist()
            return records, column

    assert asyncio.run(read()) == (values, values)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_consumers_share_a_topic_of_kafka_and_go_on_where_the_group_stopped(
    kafka: str, topic: str, protocol: Literal["classic", "consumer"]
) -> None:
    async def member(wanted: int, seen: list[bytes | None], enough: asyncio.Event) -> None:
        async with Consumer(
            kafka,
            group=topic,
            topics=[topic],
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            while not enough.is_set():
                seen += [each.value for each in await consumer.poll(timeout_ms=200)]
                if len(seen) >= wanted:
                    enough.set()

    async def run() -> list[bytes | None]:
        await _create(kafka, topic, partitions=4)
        seen: list[bytes | None] = []
        async with Producer(kafka) as producer:
            for upto in (100, 200):
                for number in range(upto - 100, upto):
                    producer.submit(topic, value=str(number), partition=number % 4)
                await producer.flush()
                enough = asyncio.Event()
                async with asyncio.timeout(60):
                    await asyncio.gather(*(member(upto, seen, enough) for _ in range(3)))
        return seen

    seen = asyncio.run(run())
    assert sorted(int(value or b"") for value in seen) == list(range(200))


def test_our_consumer_sees_only_committed_transactions_of_kafka(kafka: str, topic: str) -> None:
    asyncio.run(_read_transactions(kafka, topic))


async def _read_transactions(kafka: str, topic: str) -> None:
    from confluent_kafka import Producer as Foreign

    await _create(kafka, topic)
    tp = TopicPartition(topic, 0)
    producer = Foreign({"bootstrap.servers": kafka, "transactional.id": topic})
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
        kafka,
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

    async with Consumer(kafka, topics=[topic], auto_offset_reset="earliest") as consumer:
        values: list[bytes] = []
        while len(values) < 13:
            values += [record.value for record in await consumer.poll(10_000)]
        assert values[2:4] == [b"1a", b"1b"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_clients_lose_double_and_reorder_nothing_when_connections_to_kafka_die(
    tmp_path: Path, jars: Path, protocol: Literal["classic", "consumer"]
) -> None:
    run = asyncio.run(
        soak(Kafka(jars), tmp_path / "node", seconds=20, seed=5, protocol=protocol, kills=False)
    )
    assert anomalies(run.history) == {}
    assert run.counts["proxy: cut"] > 0
    assert run.counts["sends acknowledged"] > 1000
