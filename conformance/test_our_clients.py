"""Our own clients against Apache Kafka: they must not need our broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from conformance.records import CODECS, produce, read_all, sample_values
from headwater import Admin, Consumer, Producer, TopicPartition
from tools.nodes import Kafka, Node
from tools.record_checker import anomalies
from tools.soak import soak

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
    from confluent_kafka import Producer as Foreign

    asyncio.run(_create(kafka, topic))
    producer = Foreign({"bootstrap.servers": kafka, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(30)
    for number, commits in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, f"{number}.{part}".encode())
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)

    async def read(isolation: Literal["read_committed", "read_uncommitted"]) -> list[bytes | None]:
        place = TopicPartition(topic, 0)
        async with Consumer(
            kafka, isolation_level=isolation, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([place])
            end = (await consumer.end_offsets(place))[place]
            seen: list[bytes | None] = []
            async with asyncio.timeout(30):
                while await consumer.position(place) < end:
                    seen += [each.value for each in await consumer.poll(timeout_ms=1000)]
            return seen

    committed = [f"{number}.{part}".encode() for number in (0, 2) for part in range(3)]
    assert asyncio.run(read("read_committed")) == committed
    assert len(asyncio.run(read("read_uncommitted"))) == 12


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
