"""Kafka Streams and Kafka's demo of exactly once, on one node and on three, which are killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from conformance.conftest import Subject
from conformance.records import produce
from harness import kafka_jars
from harness.clusters import Cluster
from harness.nodes import wait_until
from harness.unruly_proxy import UnrulyProxy
from headwater import TopicPartition as Partition
from headwater.blocking import Admin
from headwater.blocking import Consumer as Reader

_OPTIONS = ("-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PATIENCE = 300.0
_WORDS = [f"word{number}" for number in range(12)]
_LINES = 300

pytestmark = pytest.mark.timeout(1200)

Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run(jars: Path, tmp_path: Path) -> Iterator[Run]:
    """Starts programs whose output goes to a file each, and ends them with the claim."""
    streams = kafka_jars.streams(kafka_jars.kafka_version())
    with ExitStack() as stack:

        def start(
            name: str, main: str, *arguments: str, options: tuple[str, ...] = ()
        ) -> subprocess.Popen[bytes]:
            command = kafka_jars.java_command(
                jars, main, *arguments, options=(*_OPTIONS, *options), more=(streams,)
            )
            output = stack.enter_context((tmp_path / f"{name}.out").open("ab"))
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def test_a_word_count_is_exact_though_it_is_killed(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    """Every update of a count is written once: each word counts 1, 2, 3 and so on."""
    _create(cluster, {"streams-plaintext-input": 2, "streams-wordcount-output": 2})
    properties = _properties(cluster, tmp_path)
    main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    written = 0

    def write() -> None:
        nonlocal written
        numbers = range(written, written + _LINES)
        lines = [f"{_WORDS[n % 12]} {_WORDS[n * 7 % 12]}".encode() for n in numbers]
        produce(cluster.bootstrap, "streams-plaintext-input", "none", lines)
        written += _LINES

    def counted(count: int) -> None:
        wait_until(lambda: len(_counts(cluster.bootstrap)) >= count, f"{count} counts", _PATIENCE)

    process = run("count-0", main, str(properties))
    write()
    counted(1)
    for number in range(1, 4):
        write()
        process.kill()
        process.wait()
        if len(cluster.nodes) > 1:
            cluster.kill(number)
        process = run(f"count-{number}", main, str(properties))
        counted(2 * written - _LINES)
        if len(cluster.nodes) > 1:
            cluster.restart(number)
            _await_in_sync(cluster, "streams-wordcount-output")
    counted(2 * written)
    found: dict[str, list[int]] = {}
    for word, count in _counts(cluster.bootstrap):
        found.setdefault(word, []).append(count)
    assert found == {word: list(range(1, len(found[word]) + 1)) for word in _WORDS}
    assert sum(map(len, found.values())) == 2 * written


def _counts(bootstrap: str) -> list[tuple[str, int]]:
    """Returns the committed records, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[tuple[str, int]] = []
    try:
        for partition in range(2):
            consumer.assign([TopicPartition("streams-wordcount-output", partition, 0)])
            while True:
                record: Any = consumer.poll(60)
                assert record is not None, "the end did not come"
                if not record.error():
                    found.append((record.key().decode(), int.from_bytes(record.value(), "big")))
                elif record.error().name() == "_PARTITION_EOF":
                    break
    finally:
        consumer.close()
    return found


def test_the_smoke_test_of_streams_verifies_its_results(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    """Its processor is killed once, with three nodes together with one of them."""
    results = "min min-suppressed min-raw max sum sws-raw sws-suppressed dif cnt avg wcnt tagg"
    _create(cluster, dict.fromkeys(["echo", "data", *results.split()], 5))
    main = "org.apache.kafka.streams.tests.StreamsSmokeTest"
    properties = str(_properties(cluster, tmp_path))
    processor = run("processor-1", main, properties, "process")
    driver = run("driver", main, properties, "run")
    partitions = [Partition("max", number) for number in range(5)]
    with Reader(cluster.bootstrap) as reader:
        wait_until(
            lambda: any(reader.end_offsets(*partitions).values()), "the first results", _PATIENCE
        )
    processor.kill()
    processor.wait()
    if len(cluster.nodes) > 1:
        cluster.kill(2)
    run("processor-2", main, properties, "process")
    if len(cluster.nodes) > 1:
        cluster.restart(2)
    assert driver.wait(_PATIENCE * 2) == 0, (tmp_path / "driver.out").read_text()[-3000:]
    printed = (tmp_path / "driver.out").read_text()
    assert "ALL-RECORDS-DELIVERED" in printed, printed[-3000:]
    assert "SUCCESS" in printed, printed[-3000:]
    assert "FAILED" not in printed, printed[-3000:]


def test_the_demo_of_exactly_once_copies_each_record_once(
    subject: Subject, run: Run, tmp_path: Path
) -> None:
    """It looks for its broker at localhost:9092, which here is an address of this claim alone."""
    with relay(subject.bootstrap) as address:
        hosts = tmp_path / "hosts"
        hosts.write_text(f"{address} localhost\n")
        demo = run(
            "demo",
            "kafka.examples.KafkaExactlyOnceDemo",
            *("3", "2", "2000"),
            options=(f"-Djdk.net.hosts.file={hosts}",),
        )
        code = demo.wait(_PATIENCE)
    printed = (tmp_path / "demo.out").read_text()
    assert code == 0, printed[-3000:]
    assert "Fetched 2000 records" in printed, printed[-3000:]


@contextmanager
def relay(target: str) -> Iterator[str]:
    """Passes on what comes to port 9092 of a loopback address that nobody else has."""
    number = os.getpid()
    address = f"127.92.{number >> 8 & 255}.{number & 255 or 1}"
    proxy = UnrulyProxy(target, seed=0)
    proxy.is_kind = True
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.start(9092, address), loop).result()
        yield address
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _create(cluster: Cluster, topics: dict[str, int]) -> None:
    with Admin(cluster.bootstrap) as admin:
        for name, partitions in topics.items():
            admin.create_topic(name, partitions=partitions, replication=len(cluster.nodes))


def _await_in_sync(cluster: Cluster, topic: str) -> None:
    with Admin(cluster.bootstrap) as admin:
        wait_until(
            lambda: all(
                len(each.in_sync) == len(cluster.nodes)
                for each in admin.describe_topic(topic).partitions
            ),
            f"all replicas of {topic} in sync",
        )


def _properties(cluster: Cluster, folder: Path) -> Path:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "state.dir": str(folder / "state"),
        "commit.interval.ms": "100",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "replication.factor": str(len(cluster.nodes)),
        "producer.delivery.timeout.ms": "240000",
    }
    path = folder / "streams.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
