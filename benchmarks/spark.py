"""Headwater's data source and Spark's Kafka connector, in one session on the same broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.clients import create_topic, producer_performance
from benchmarks.rows import Comparison, Session, at_least, at_most
from harness.nodes import Flavour, Node
from harness.spark_jars import spark_jars

_OURS, _SPARKS = "headwater", "spark-sql-kafka"
_AT_LEAST_ONCE = "at-least-once"
_EXACTLY_ONCE = {
    "exactly-once": "the sink with delivery=exactly_once",
    "exactly-once-writer": "exactly_once_writer",
}
_PARTITIONS = 4
_SECONDS_MAX = 1800


def spark(session: Session, flavour: Flavour) -> Iterator[Comparison]:
    """Reads and writes records of 100 B in four partitions, on local[2]."""
    node = session.fresh_node(flavour).start()
    create_topic(node, "many", _PARTITIONS)
    create_topic(node, "few", 2)
    records = session.size(10_000_000, 1_000_000)
    producer_performance(session.jars, node, "many", records=records, size=100)
    rounds = session.size(3, 2)
    read = _run(node, "read", "many", records, rounds)
    yield Comparison(
        "spark.read",
        "read 100 B, batch to noop",
        "records/s",
        {_OURS: read[_OURS], _SPARKS: read[_SPARKS]},
        {_SPARKS: at_least(2.0)},
        more_is_better=True,
    )
    yield Comparison(
        "spark.files",
        "read 100 B, batch from segment files to noop",
        "records/s",
        {_OURS: read["files"], _SPARKS: read[_SPARKS]},
        {_SPARKS: at_least(4.0)},
        more_is_better=True,
    )
    stream = _run(node, "stream", "many", records, rounds)
    yield Comparison(
        "spark.stream",
        "read 100 B, AvailableNow to noop",
        "records/s",
        {_OURS: stream[_OURS], _SPARKS: stream[_SPARKS]},
        {_SPARKS: at_least(2.0)},
        more_is_better=True,
    )
    write = _run(node, "write", "written", records, rounds)
    yield Comparison(
        "spark.write",
        "write 100 B, batch",
        "records/s",
        {_OURS: write[_OURS], _SPARKS: write[_SPARKS]},
        {_SPARKS: at_least(1.5)},
        more_is_better=True,
    )
    sink = _run(node, "sink", "many", records, rounds)
    for delivery, what in _EXACTLY_ONCE.items():
        yield Comparison(
            f"spark.{delivery}",
            f"copy 100 B as a stream of ten batches, {what}",
            "records/s",
            {_OURS: sink[delivery], _AT_LEAST_ONCE: sink[_AT_LEAST_ONCE]},
            {_AT_LEAST_ONCE: at_least(0.8)},
            more_is_better=True,
        )
    latency = _run(node, "latency", "few", session.size(20, 10), rounds)
    yield Comparison(
        "spark.latency",
        "20 records: acknowledged to processed, p50",
        "ms",
        {_OURS: latency[_OURS], _SPARKS: latency[_SPARKS]},
        {_SPARKS: at_most(1.0)},
    )
    node.remove()


def _run(
    node: Node, action: str, topic: str, count: int, rounds: int
) -> dict[str, tuple[float, ...]]:
    """Alternates between the connectors, so that background load affects all equally."""
    jars = ",".join(map(str, spark_jars()))
    command = [sys.executable, "-m", "benchmarks.spark_load", action, node.bootstrap, topic]
    done = subprocess.run(
        [*command, str(count), str(rounds), jars, str(node.folder)],
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
    )
    assert done.returncode == 0, f"spark {action}: {done.stderr.strip()[-1500:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: tuple(samples) for name, samples in found.items()}
