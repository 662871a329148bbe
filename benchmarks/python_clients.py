"""Headwater's Python clients and others, on the same broker with the same records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.clients import create_topic
from benchmarks.rows import Comparison, Session, at_least, at_most
from harness.nodes import Flavour, Node

_OURS, _CONFLUENT, _AIOKAFKA, _KAFKA_PYTHON = (
    "headwater",
    "confluent-kafka",
    "aiokafka",
    "kafka-python",
)
_PARTITIONS = 6
# Slow clients get fewer records, so that each takes a few seconds.
_SHARE = {_OURS: 1.0, _CONFLUENT: 1.0, _AIOKAFKA: 0.1, _KAFKA_PYTHON: 0.02}


def python_clients(session: Session, flavour: Flavour) -> Iterator[Comparison]:
    node = session.fresh_node(flavour).start()
    create_topic(node, "many", _PARTITIONS)
    create_topic(node, "one")
    count = session.size(2_000_000, 500_000)
    everybody = (_OURS, _CONFLUENT, _AIOKAFKA, _KAFKA_PYTHON)
    yield Comparison(
        "python.produce",
        "produce 100 B, queue then flush",
        "records/s",
        _samples(session, node, everybody, "produce", "many", count),
        {_CONFLUENT: at_least(1.0), _AIOKAFKA: at_least(8.0)},
        more_is_better=True,
    )
    yield Comparison(
        "python.send",
        "one awaited send, p50",
        "ms",
        _samples(session, node, everybody[:3], "send", "one", session.size(4000, 1500)),
        {_CONFLUENT: at_most(1.2), _AIOKAFKA: at_most(0.5)},
    )
    # The records that were just written are enough for the readers.
    yield Comparison(
        "python.iterate",
        "consume 100 B, record by record",
        "records/s",
        _samples(session, node, everybody, "iterate", "many", count),
        {_CONFLUENT: at_least(1.0), _AIOKAFKA: at_least(4.0)},
        more_is_better=True,
    )
    yield Comparison(
        "python.arrow",
        "consume 100 B, many at a time (poll_arrow, consume)",
        "records/s",
        _samples(session, node, everybody[:2], "arrow", "many", count),
        {_CONFLUENT: at_least(5.0)},
        more_is_better=True,
    )
    node.remove()


def _samples(
    session: Session, node: Node, clients: Sequence[str], action: str, topic: str, count: int
) -> dict[str, tuple[float, ...]]:
    """Measures in rounds, so that background load affects all clients equally."""
    found: dict[str, list[float]] = {client: [] for client in clients}
    for _ in range(session.size(3, 1)):
        for client in clients:
            share = count if action == "send" else int(count * _SHARE[client])
            found[client].append(_run(node, client, action, topic, share))
    return {client: tuple(samples) for client, samples in found.items()}


def _run(node: Node, client: str, action: str, topic: str, count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.python_load", client, action]
    done = subprocess.run(
        [*command, node.bootstrap, topic, str(count)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{client} {action}: {done.stderr.strip()[-500:]}"
    (value,) = json.loads(done.stdout.splitlines()[-1]).values()
    return float(value)
