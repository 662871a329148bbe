"""`python -m benchmarks.python_load CLIENT ACTION BOOTSTRAP TOPIC COUNT`: runs one client.

Each measurement runs in its own process, so that clients do not share an interpreter. Prints a
JSON object with `rate` for throughput or `median_ms` for latency.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

VALUE = b"x" * 100
_WARM = 300
_ROWS_MAX = 100_000

Result = dict[str, float]
Load = Callable[[str, str, int], Result]


# Headwater


def headwater_produce(bootstrap: str, topic: str, count: int) -> Result:
    from headwater import Producer

    async def run() -> float:
        async with Producer(bootstrap) as producer:
            await producer.send(topic, value=VALUE)
            submit = producer.submit
            started = time.perf_counter()
            for _ in range(count):
                submit(topic, value=VALUE)
            await producer.flush()
            return count / (time.perf_counter() - started)

    return {"rate": asyncio.run(run())}


def headwater_send(bootstrap: str, topic: str, count: int) -> Result:
    from headwater import Producer

    async def run() -> list[float]:
        waits = []
        async with Producer(bootstrap, linger_ms=0) as producer:
            for _ in range(count + _WARM):
                started = time.perf_counter()
                await producer.send(topic, value=VALUE, partition=0)
                waits.append(time.perf_counter() - started)
        return waits

    return _median(asyncio.run(run()))


def headwater_iterate(bootstrap: str, topic: str, count: int) -> Result:
    from headwater import Consumer

    async def run() -> float:
        async with Consumer(bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
            left, began = count, 0.0
            async for record in consumer:
                if left == count:
                    began = time.perf_counter()
                assert record.value is not None
                left -= 1
                if not left:
                    break
            return count / (time.perf_counter() - began)

    return {"rate": asyncio.run(run())}


def headwater_arrow(bootstrap: str, topic: str, count: int) -> Result:
    from headwater import Consumer

    async def run() -> float:
        async with Consumer(bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
            first = await consumer.poll_arrow(rows_max=_ROWS_MAX, timeout_ms=10_000)
            seen = first.num_rows
            started = time.perf_counter()
            while seen < count:
                table = await consumer.poll_arrow(rows_max=_ROWS_MAX, timeout_ms=10_000)
                assert table.num_rows, f"only {seen} of {count} rows came"
                seen += table.num_rows
            return float(seen - first.num_rows) / (time.perf_counter() - started)

    return {"rate": asyncio.run(run())}


# confluent-kafka


def confluent_produce(bootstrap: str, topic: str, count: int) -> Result:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 2})
    producer.produce(topic, VALUE)
    producer.flush()
    produce = producer.produce
    started = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(120) == 0
    return {"rate": count / (time.perf_counter() - started)}


def confluent_send(bootstrap: str, topic: str, count: int) -> Result:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
    waits = []
    for _ in range(count + _WARM):
        started = time.perf_counter()
        producer.produce(topic, VALUE, partition=0)
        assert producer.flush(30) == 0
        waits.append(time.perf_counter() - started)
    return _median(waits)


def _confluent_consumer(bootstrap: str, topic: str) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # It stops fetching for a second whenever its queue is full, which happens all the
            # time with a fast broker.
            "fetch.queue.backoff.ms": 10,
            "log_level": 2,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return consumer


def confluent_iterate(bootstrap: str, topic: str, count: int) -> Result:
    """Uses `poll`, which returns one record."""
    consumer = _confluent_consumer(bootstrap, topic)
    poll = consumer.poll
    left, began = count, 0.0
    while left:
        message = poll(30)
        assert message is not None, f"{left} of {count} records did not come"
        if left == count:
            began = time.perf_counter()
        assert message.value() is not None
        left -= 1
    return {"rate": count / (time.perf_counter() - began)}


def confluent_arrow(bootstrap: str, topic: str, count: int) -> Result:
    """Uses `consume`, which returns many records: the closest it has to a table."""
    consumer = _confluent_consumer(bootstrap, topic)
    first = consumer.consume(10_000, 30)
    seen = len(first)
    started = time.perf_counter()
    while seen < count:
        messages = consumer.consume(10_000, 30)
        assert messages, f"only {seen} of {count} records came"
        seen += len(messages)
    return {"rate": (seen - len(first)) / (time.perf_counter() - started)}


# aiokafka


def aiokafka_produce(bootstrap: str, topic: str, count: int) -> Result:
    from aiokafka import AIOKafkaProducer

    async def run() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", linger_ms=5, max_batch_size=262_144
        )
        await producer.start()
        await producer.send_and_wait(topic, VALUE)
        started = time.perf_counter()
        for _ in range(count):
            await producer.send(topic, VALUE)
        await producer.flush()
        rate = count / (time.perf_counter() - started)
        await producer.stop()
        return rate

    return {"rate": asyncio.run(run())}


def aiokafka_send(bootstrap: str, topic: str, count: int) -> Result:
    from aiokafka import AIOKafkaProducer

    async def run() -> list[float]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
        await producer.start()
        waits = []
        for _ in range(count + _WARM):
            started = time.perf_counter()
            await producer.send_and_wait(topic, VALUE, partition=0)
            waits.append(time.perf_counter() - started)
        await producer.stop()
        return waits

    return _median(asyncio.run(run()))


def aiokafka_iterate(bootstrap: str, topic: str, count: int) -> Result:
    from aiokafka import AIOKafkaConsumer

    async def run() -> float:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        left, began = count, 0.0
        async for message in consumer:
            if left == count:
                began = time.perf_counter()
            assert message.value is not None
            left -= 1
            if not left:
                break
        rate = count / (time.perf_counter() - began)
        await consumer.stop()
        return rate

    return {"rate": asyncio.run(run())}


# kafka-python


def kafka_python_produce(bootstrap: str, topic: str, count: int) -> Result:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=5, batch_size=262_144
    )
    producer.send(topic, VALUE).get(30)
    started = time.perf_counter()
    for _ in range(count):
        producer.send(topic, VALUE)
    producer.flush()
    return {"rate": count / (time.perf_counter() - started)}


def kafka_python_iterate(bootstrap: str, topic: str, count: int) -> Result:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    left, began = count, 0.0
    for message in consumer:
        if left == count:
            began = time.perf_counter()
        assert message.value is not None
        left -= 1
        if not left:
            break
    return {"rate": count / (time.perf_counter() - began)}


def _median(waits: list[float]) -> Result:
    ordered = sorted(waits[_WARM:])
    return {"median_ms": ordered[len(ordered) // 2] * 1000}


LOADS: dict[tuple[str, str], Load] = {
    ("headwater", "produce"): headwater_produce,
    ("headwater", "send"): headwater_send,
    ("headwater", "iterate"): headwater_iterate,
    ("headwater", "arrow"): headwater_arrow,
    ("confluent-kafka", "produce"): confluent_produce,
    ("confluent-kafka", "send"): confluent_send,
    ("confluent-kafka", "iterate"): confluent_iterate,
    ("confluent-kafka", "arrow"): confluent_arrow,
    ("aiokafka", "produce"): aiokafka_produce,
    ("aiokafka", "send"): aiokafka_send,
    ("aiokafka", "iterate"): aiokafka_iterate,
    ("kafka-python", "produce"): kafka_python_produce,
    ("kafka-python", "iterate"): kafka_python_iterate,
}


def main() -> None:
    client, action, bootstrap, topic, count = sys.argv[1:]
    print(json.dumps(LOADS[client, action](bootstrap, topic, int(count))))


if __name__ == "__main__":
    main()
