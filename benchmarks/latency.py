"""Latency of one record at a time, with Kafka's Java producer and with librdkafka.

The tail depends on what else the machine does at that moment, so both brokers run at once and are
measured in turn.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.clients import create_topic
from benchmarks.rows import Goal, Measurement, Session, at_most
from harness import kafka_jars
from harness.nodes import Flavour, Node

_TOPIC = "one"
_VALUE = b"x" * 100
_WARM_UP = 3000
# The client's JVM compiles for several seconds, in threads that compete with client and broker for
# two cores: without a warm-up, its tail would be measured, and not the broker's.
_WARM_UP_JAVA = 30_000
_PROGRAM = Path(__file__).parent / "java" / "SynchronousSends.java"

# The name of a quantile, its rank, its goal as a ratio to Kafka's.
_QUANTILES: tuple[tuple[str, float, Goal | None], ...] = (
    ("p50", 0.5, None),
    ("p99", 0.99, at_most(0.8)),
    ("p99.9", 0.999, at_most(1.0)),
)

Sends = Callable[[Session, Node, int], list[float]]


def latency(
    session: Session, kafka: Flavour, subject: Flavour
) -> Iterator[tuple[Measurement, Measurement]]:
    """Synchronous sends to both brokers in turn; each round gives its own quantiles."""
    nodes = [session.fresh_node(flavour).start() for flavour in (kafka, subject)]
    for node in nodes:
        create_topic(node, _TOPIC)
    count, rounds = session.size(10_000, 5000), session.size(5, 2)
    for node in nodes:  # a JVM compiles this path only after some thousand requests
        _librdkafka(session, node, 2 * count)
    tools: dict[str, Sends] = {"librdkafka": _librdkafka, "java": _java}
    for tool, sends in tools.items():
        key = f"latency.{tool}"
        if not session.wants_below(key):
            continue
        samples: list[list[list[float]]] = [[], []]
        for number in range(rounds):
            order = (0, 1) if number % 2 else (1, 0)
            for which in order:
                latencies = sorted(sends(session, nodes[which], count))
                samples[which].append([_at(latencies, rank) for _, rank, _ in _QUANTILES])
        for column, (name, _, goal) in enumerate(_QUANTILES):
            ours, theirs = (
                Measurement(
                    f"{key}.{name}",
                    f"one record at a time, {tool}, {name}",
                    "µs",
                    tuple(each[column] for each in samples[which]),
                    goal,
                )
                for which in (1, 0)
            )
            yield theirs, ours
    for node in nodes:
        node.remove()


def _at(ordered: list[float], rank: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * rank))]


def _librdkafka(_: Session, node: Node, count: int) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "log_level": 2})
    latencies = []
    for number in range(count + _WARM_UP):
        started = time.perf_counter()
        producer.produce(_TOPIC, _VALUE, partition=0)
        left = producer.flush(30)
        elapsed = time.perf_counter() - started
        assert left == 0, "a synchronous send was not acknowledged"
        if number >= _WARM_UP:
            latencies.append(elapsed * 1e6)
    return latencies


def _java(session: Session, node: Node, count: int) -> list[float]:
    warm_up = session.size(_WARM_UP_JAVA, _WARM_UP)
    arguments = [node.bootstrap, _TOPIC, str(count), str(warm_up)]
    done = subprocess.run(
        kafka_jars.java_command(session.jars, str(_PROGRAM), *arguments, options=("-Xmx512M",)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{_PROGRAM.name} ended with {done.returncode}:\n{done.stderr}"
    return [int(line) / 1000 for line in done.stdout.split()]
