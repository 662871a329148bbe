"""Clients of other people: what each sends with each codec comes back the same."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.wire import JOIN_GROUP, Wire
from conformance.conftest import Subject
from conformance.records import CODECS, create_topic, produce, read_all, sample_values, values_of

_HERE = Path(__file__).parent
# What kafka-python and aiokafka need for the codecs that Python does not bring.
_PYTHON_PACKAGES = ("python-snappy", "lz4", "zstandard", "cramjam")


@pytest.fixture(scope="session", autouse=True)
def _codecs() -> None:
    if not all(map(find_spec, ("cramjam", "lz4", "snappy", "zstandard"))):
        command = [sys.executable, "-m", "pip", "install", "-q", *_PYTHON_PACKAGES]
        subprocess.run(command, check=True)


@contextmanager
def _wire(subject: Subject) -> Iterator[Wire]:
    wire = Wire.connect(int(subject.bootstrap.rpartition(":")[2]))
    try:
        yield wire
    finally:
        wire.close()


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_round_trip(subject: Subject, topic: str, codec: str) -> None:
    create_topic(subject.bootstrap, topic)
    values = sample_values(codec)
    produce(subject.bootstrap, topic, codec, values)
    seen = read_all(subject.bootstrap, topic)
    assert [record.value for record in seen] == values
    assert [record.offset for record in seen] == list(range(len(values)))
    assert seen[1].key == b"key 1"
    assert seen[3].key is None
    assert seen[1].headers == (("number", b"1"), ("nothing", None))


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_round_trip(subject: Subject, topic: str, codec: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    create_topic(subject.bootstrap, topic)
    values = sample_values(codec)
    producer = KafkaProducer(
        bootstrap_servers=subject.bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all",
    )
    sent = [producer.send(topic, value, key=b"k", headers=[("h", b"1")]) for value in values]
    producer.flush(30)
    assert [future.get(10).offset for future in sent] == list(range(len(values)))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=subject.bootstrap, consumer_timeout_ms=30_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    read = [next(consumer) for _ in values]
    consumer.close()
    assert [record.value for record in read] == values
    assert {(record.key, tuple(record.headers)) for record in read} == {(b"k", (("h", b"1"),))}
    assert values_of(subject.bootstrap, topic) == values


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_round_trip(subject: Subject, topic: str, codec: str) -> None:
    create_topic(subject.bootstrap, topic)
    values = sample_values(codec)
    asyncio.run(_with_aiokafka(subject.bootstrap, topic, codec, values))
    assert values_of(subject.bootstrap, topic) == values


async def _with_aiokafka(bootstrap: str, topic: str, codec: str, values: list[bytes]) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    compression = None if codec == "none" else codec
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=compression, enable_idempotence=True
    ) as producer:
        sent = [await producer.send(topic, value, headers=[("h", b"1")]) for value in values]
        assert [(await each).offset for each in sent] == list(range(len(values)))
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer, asyncio.timeout(30):
        read = [await consumer.getone() for _ in values]
    assert [record.value for record in read] == values


@pytest.mark.parametrize("codec", CODECS)
def test_kafkajs_round_trip(subject: Subject, topic: str, codec: str, node_modules: Path) -> None:
    # kafkajs has no consumer without a group; where there are no groups librdkafka reads for it.
    with _wire(subject) as wire:
        has_groups = wire.supports(JOIN_GROUP)
    script = str(_HERE / "kafkajs_round_trip.js")
    done = subprocess.run(
        ["node", script, subject.bootstrap, topic, codec, "300", "yes" if has_groups else "no"],
        env={**os.environ, "NODE_PATH": str(node_modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    expected = [f"{codec} {number} " * 20 for number in range(300)]
    assert (answer["low"], answer["high"]) == ("0", "300")
    assert values_of(subject.bootstrap, topic) == [text.encode() for text in expected]
    if has_groups:
        assert answer["read"] == expected
