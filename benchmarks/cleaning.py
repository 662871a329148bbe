"""The time to compact a log with few keys and many records.

Observed from outside by the size of its files, so that both brokers are measured in the same way.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.clients import create_topic
from benchmarks.rows import Measurement, Session
from harness.nodes import Flavour, Node

_TOPIC = "keyed"
_KEYS = 10_000
_VALUE_BYTES = 1000
_SEGMENT_BYTES = 16 * 1024 * 1024
_PATIENCE = 300.0


def cleaning(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    megabytes = session.size(512, 96)
    node = session.fresh_node(flavour)
    node.settings["log.cleaner.backoff.ms"] = "50"
    node.start()
    settings = {"segment.bytes": str(_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
    create_topic(node, _TOPIC, config=settings)
    _fill(node, megabytes * 1_000_000 // _VALUE_BYTES)
    folder = node.log_folder / f"{_TOPIC}-0"
    before = _log_bytes(folder)
    # One record per key remains, and the active segment.
    enough = 2 * _KEYS * _VALUE_BYTES + 2 * _SEGMENT_BYTES
    cpu = node.cpu_seconds()
    started = time.monotonic()
    _compact(node)
    while _log_bytes(folder) > enough:
        assert time.monotonic() - started < _PATIENCE, "compaction took too long"
        time.sleep(0.005)
    seconds = time.monotonic() - started
    used = node.cpu_seconds() - cpu
    node.remove()
    yield Measurement(
        "clean",
        f"compaction of {megabytes} MB, {_KEYS:,} keys",
        "MB/s",
        (before / 1e6 / seconds,),
        more_is_better=True,
    )
    yield Measurement("clean.cpu", "broker CPU for each GB compacted", "s", (used / before * 1e9,))


def _fill(node: Node, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
            "log_level": 2,
        }
    )
    value = os.urandom(_VALUE_BYTES)
    for number in range(count):
        while True:
            try:
                producer.produce(_TOPIC, value, key=b"%d" % (number % _KEYS))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_PATIENCE) == 0


def _compact(node: Node) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    admin.incremental_alter_configs([resource])[resource].result(30)


def _log_bytes(folder: Path) -> int:
    total = 0
    for file in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size
    return total
