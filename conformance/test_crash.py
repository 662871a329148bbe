"""kill -9 under load: what was acknowledged is there afterwards, once and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Producer

from conformance.records import create_topic, read_all
from harness.nodes import Node

_PARTITIONS = 3
_KILLS = 3


def test_nothing_acknowledged_is_lost_doubled_or_reordered_by_kill_9(
    new_node: Callable[..., Node],
) -> None:
    node = new_node().start()
    create_topic(node.bootstrap, "load", _PARTITIONS)
    acknowledged: list[set[int]] = [set() for _ in range(_PARTITIONS)]
    done = threading.Event()
    loading = threading.Thread(target=_load, args=(node.bootstrap, acknowledged, done))
    loading.start()
    try:
        for _ in range(_KILLS):
            _until_grown(acknowledged, by=5000)
            node.kill()
            node.start()
        _until_grown(acknowledged, by=5000)
    finally:
        done.set()
        loading.join()
    for partition, sent in enumerate(acknowledged):
        read = [
            int(record.value or b"")
            for record in read_all(node.bootstrap, "load")
            if record.partition == partition
        ]
        assert sent <= set(read), f"lost in partition {partition}: {sorted(sent - set(read))[:10]}"
        assert read == sorted(set(read)), f"doubled or out of order in partition {partition}"


def _load(bootstrap: str, acknowledged: list[set[int]], done: threading.Event) -> None:
    """One idempotent producer that lives through all the crashes."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 500,
            "message.timeout.ms": 120_000,
            "log_level": 0,
        }
    )

    def delivered(number: int, partition: int) -> Callable[[object, object], None]:
        def answered(error: object, _message: object) -> None:
            if error is None:
                acknowledged[partition].add(number)

        return answered

    number = 0
    while not done.is_set():
        if len(producer) > 2000:
            producer.poll(0.01)
            continue
        partition = number % _PARTITIONS
        value = str(number).encode()
        answered = delivered(number, partition)
        producer.produce("load", value, partition=partition, on_delivery=answered)
        producer.poll(0)
        number += 1
    assert producer.flush(120) == 0


def _until_grown(acknowledged: list[set[int]], *, by: int) -> None:
    goal = sum(map(len, acknowledged)) + by
    deadline = time.monotonic() + 90
    while sum(map(len, acknowledged)) < goal:
        assert time.monotonic() < deadline, "the load does not get on"
        time.sleep(0.01)
