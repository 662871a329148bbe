"""Load generators: Kafka's Java tools and librdkafka's Python binding."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.wire import NotReady, Wire
from harness import kafka_jars
from harness.nodes import Node

_RESULT = re.compile(
    r"([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency.*?"
    r"([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th"
)

# Each reader is a process, so that readers do not share an interpreter lock.
_READER = """
import json, sys, time
from confluent_kafka import Consumer, TopicPartition
bootstrap, topic, partitions, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 2,
                     "enable.auto.commit": False, "queued.max.messages.kbytes": 131072,
                     **json.loads(sys.argv[5])})
consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
seen = size = 0
started = None
while seen < wanted:
    messages = consumer.consume(min(10000, wanted - seen), timeout=30)
    if not messages:
        sys.exit(f"only {seen} of {wanted} records came")
    if started is None:
        started, skipped = time.monotonic(), len(messages)
    for message in messages:
        if message.error():
            sys.exit(str(message.error()))
    seen += len(messages)
elapsed = time.monotonic() - started
size = len(messages[-1].value())
print(json.dumps({"records": seen - skipped, "seconds": elapsed, "bytes": (seen - skipped) * size}))
"""


@dataclass(frozen=True, slots=True)
class Produced:
    records_per_second: float
    megabytes_per_second: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Consumed:
    records_per_second: float
    megabytes_per_second: float


class Reachable(Protocol):
    """A node or a cluster."""

    @property
    def bootstrap(self) -> str: ...


def producer_performance(
    jars: Path,
    node: Reachable,
    topic: str,
    *,
    records: int,
    size: int,
    codec: str = "none",
    per_second: int = -1,
    warm_up: int = 0,
    security: Mapping[str, str] | None = None,
) -> Produced:
    """Runs Kafka's ProducerPerformance with acks=all and its defaults otherwise, unthrottled unless
    there is a rate. The first `warm_up` records, while the tool itself starts, do not count."""
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(size)]
    arguments += ["--throughput", str(per_second), "--bootstrap-server", node.bootstrap]
    if warm_up:
        arguments += ["--warmup-records", str(warm_up)]
    arguments += ["--command-property", "acks=all", f"compression.type={codec}"]
    arguments += [f"{key}={value}" for key, value in (security or {}).items()]
    return _performance(jars, arguments)


def _performance(jars: Path, arguments: list[str]) -> Produced:
    output = _java(jars, "org.apache.kafka.tools.ProducerPerformance", arguments)
    found = _RESULT.findall(output)
    assert found, f"ProducerPerformance did not end as expected:\n{output}"
    rate, megabytes, _average, _p50, _p95, p99 = found[-1]
    return Produced(float(rate), float(megabytes) * 1.048576, float(p99))


def transactional_performance(
    jars: Path, node: Reachable, topic: str, *, records: int, size: int
) -> Produced:
    """Runs Kafka's ProducerPerformance in transactions of 100 ms."""
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(size)]
    arguments += ["--throughput", "-1", "--bootstrap-server", node.bootstrap]
    arguments += ["--transactional-id", "perf", "--transaction-duration-ms", "100"]
    return _performance(jars, arguments)


def consumer_performance(
    jars: Path,
    node: Reachable,
    topic: str,
    *,
    records: int,
    security: Mapping[str, str] | None = None,
) -> Consumed:
    """Runs Kafka's ConsumerPerformance, which joins a group; joining is not counted."""
    arguments = ["--topic", topic, "--num-records", str(records), "--bootstrap-server"]
    arguments += [node.bootstrap, "--hide-header", "--timeout", "60000"]
    for key, value in (security or {}).items():
        arguments += ["--command-property", f"{key}={value}"]
    output = _java(jars, "org.apache.kafka.tools.ConsumerPerformance", arguments)
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    columns = output.strip().splitlines()[-1].split(",")
    assert len(columns) == 10, f"ConsumerPerformance did not end as expected:\n{output}"
    return Consumed(float(columns[9]), float(columns[8]) * 1.048576)


def console_consumer(
    jars: Path, node: Node, topic: str, *, records: int, size: int, partition: int = 0
) -> Consumed:
    """Runs Kafka's ConsoleConsumer on one partition, without a group and without output."""
    elapsed = _console_seconds(jars, node, topic, partition, records)
    # The tool does not report its reading time, so subtract the start-up time of the JVM.
    elapsed -= _console_seconds(jars, node, topic, partition, 1)
    return Consumed(records / elapsed, records * size / elapsed / 1e6)


def _console_seconds(jars: Path, node: Node, topic: str, partition: int, records: int) -> float:
    arguments = ["--topic", topic, "--partition", str(partition), "--offset", "earliest"]
    arguments += ["--max-messages", str(records), "--bootstrap-server", node.bootstrap]
    arguments += ["--timeout-ms", "30000", "--formatter"]
    arguments += ["org.apache.kafka.tools.consumer.NoOpMessageFormatter"]
    started = time.monotonic()
    output = _java(jars, "org.apache.kafka.tools.consumer.ConsoleConsumer", arguments)
    assert f"Processed a total of {records} messages" in output, output
    return time.monotonic() - started


def librdkafka_readers(
    node: Reachable,
    topic: str,
    *,
    partitions: int,
    records: int,
    readers: int,
    security: Mapping[str, str] | None = None,
) -> Consumed:
    """Runs confluent-kafka consumers that each read the whole topic; adds up their rates."""
    command = [sys.executable, "-c", _READER, node.bootstrap, topic, str(partitions), str(records)]
    command.append(json.dumps(security or {}))
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(readers)
    ]
    rows = []
    for child in children:
        output, _ = child.communicate(timeout=300)
        assert child.returncode == 0, f"a reader ended with {child.returncode}: {output}"
        rows.append(json.loads(output))
    return Consumed(
        sum(row["records"] / row["seconds"] for row in rows),
        sum(row["bytes"] / row["seconds"] for row in rows) / 1e6,
    )


def create_topic(
    node: Node, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> float:
    """Creates a topic with librdkafka; returns the seconds until it is served."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    started = time.monotonic()
    wanted = NewTopic(topic, partitions, 1, config=config or {})
    admin.create_topics([wanted], request_timeout=60)[topic].result(60)
    while True:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        if len(found) == partitions and all(each.leader >= 0 for each in found):
            break
    # The controller has chosen leaders; the broker must still open the partitions.
    asked = range(partitions) if partitions < 16 else (0, partitions - 1)
    for partition in asked:
        while not _serves(node, topic, partition):
            time.sleep(0.002)
    return time.monotonic() - started


def _serves(node: Node, topic: str, partition: int) -> bool:
    try:
        wire = Wire.connect(node.port)
        try:
            wire.log_end(topic, partition)
        finally:
            wire.close()
    except NotReady:
        return False
    return True


def _java(jars: Path, main: str, arguments: list[str]) -> str:
    # The heap that bin/kafka-run-class.sh gives to tools, larger for the perf tools as in Kafka.
    done = subprocess.run(
        kafka_jars.java_command(jars, main, *arguments, options=("-Xmx512M",)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{main} ended with {done.returncode}:\n{output}"
    return output
