"""Start, idle memory and restart: from the launch of the process to its first response."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks import wire
from benchmarks.clients import create_topic, producer_performance
from benchmarks.rows import Measurement, Session, at_most
from harness.nodes import Flavour, Node

_PATIENCE = 180.0


def start_and_idle(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Starts an empty, formatted node; a metadata request creates the topic."""
    times, idle = [], []
    for _ in range(session.samples(5, 2)):
        node = session.fresh_node(flavour)
        flavour.prepare(node)
        times.append(_seconds_to_ack(node))
        time.sleep(session.size(5, 3))  # until memory has settled
        idle.append(node.resident_bytes() / 1e6)
        node.remove()
    yield Measurement(
        "start", "start to first acknowledged produce", "s", tuple(times), at_most(0.1)
    )
    yield Measurement("memory.idle", "resident memory, idle", "MB", tuple(idle), at_most(0.15))


def restart(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Restarts a node with a log of 1 GB: after kill -9, then after a clean stop."""
    node = session.fresh_node(flavour).start()
    megabytes = session.size(1024, 256)
    create_topic(node, "log")
    producer_performance(session.jars, node, "log", records=megabytes * 1024, size=1000)
    node.kill()
    crashed = _seconds_to_ack(node)
    fetched_from = time.monotonic()
    first_fetch = wire.wait_for_fetch(node.port, "log", seconds=_PATIENCE) - fetched_from
    times = []
    for _ in range(session.samples(3, 1)):
        node.stop()
        times.append(_seconds_to_ack(node))
    node.remove()
    what = f"with {megabytes} MB of log"
    yield Measurement(
        "restart.kill", f"restart to first ack after kill -9, {what}", "s", (crashed,), at_most(0.2)
    )
    yield Measurement(
        "restart.kill.fetch", "and from there to the first fetch", "s", (first_fetch,)
    )
    yield Measurement(
        "restart.clean", f"restart to first ack after a stop, {what}", "s", tuple(times)
    )


def partitions(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Creates and fills a topic with a thousand partitions, then restarts the node."""
    count = session.size(1000, 300)
    node = session.fresh_node(flavour).start()
    created = create_topic(node, "wide", count)
    records = session.size(3_000_000, 500_000)
    produced = producer_performance(session.jars, node, "wide", records=records, size=100)
    memory = node.resident_bytes() / 1e6
    node.stop()
    again = _seconds_to_ack(node, "wide")
    node.remove()
    name = f"{count} partitions"
    yield Measurement("partitions.create", f"{name}: create", "s", (created,))
    yield Measurement(
        "partitions.produce",
        f"{name}: produce 100 B",
        "MB/s",
        (produced.megabytes_per_second,),
        more_is_better=True,
    )
    yield Measurement("partitions.memory", f"{name}: resident memory", "MB", (memory,))
    yield Measurement("partitions.restart", f"{name}: restart to first ack", "s", (again,))


def _seconds_to_ack(node: Node, topic: str = "log") -> float:
    started = time.monotonic()
    node.launch()
    acknowledged = wire.wait_for_ack(node.port, topic, seconds=_PATIENCE, alive=node.raise_if_ended)
    return acknowledged - started
