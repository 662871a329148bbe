"""Latency and rate of requests with one record."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.clients import create_topic
from benchmarks.rows import Measurement, Session, at_least, at_most
from benchmarks.wire import Wire, pipelined_produce, produce_frame
from harness.nodes import Flavour, Node
from headwater import _core

_VALUE = b"x" * 100
_CONNECTIONS = 8


def requests(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Measures synchronous sends with librdkafka, then pipelined requests."""
    node = session.fresh_node(flavour).start()
    create_topic(node, "one")
    create_topic(node, "many", _CONNECTIONS)
    seconds = session.size(6, 2)
    for _ in range(2):  # warm-up: a JVM compiles this path only after some seconds
        _pipelined(node, seconds, connections=_CONNECTIONS, window=16)
    if session.wants_below("sync"):
        yield from _synchronous(session, node)
    for connections, window in ((1, 16), (_CONNECTIONS, 16)):
        if not session.wants(f"requests.{connections}"):
            continue
        rates = [
            _pipelined(node, seconds, connections=connections, window=window)
            for _ in range(session.samples(3, 1))
        ]
        plural = "s" if connections > 1 else ""
        yield Measurement(
            f"requests.{connections}",
            f"one-record requests, {connections} connection{plural}, {window} in flight",
            "requests/s",
            tuple(rates),
            more_is_better=True,
        )
    if session.wants("requests.librdkafka"):
        count = session.size(60_000, 10_000)
        rates = [_librdkafka(node, count) for _ in range(session.samples(3, 1))]
        yield Measurement(
            "requests.librdkafka",
            "one-record requests, librdkafka",
            "requests/s",
            tuple(rates),
            at_least(5.0),
            more_is_better=True,
        )
    node.remove()


def _synchronous(session: Session, node: Node) -> Iterator[Measurement]:
    """Measures with librdkafka, whose threads take most of the time, and with a plain socket, which
    shows the time of the broker."""
    what = "one-record synchronous produce"
    for key, tool, round_trips, goals in (
        ("sync", "", _round_trips, (at_most(0.3), at_most(0.5))),
        ("sync.wire", " with a plain socket", _wire_round_trips, (None, None)),
    ):
        medians, tails = [], []
        for _ in range(session.samples(3, 1)):
            waits = sorted(round_trips(node, session.size(4000, 1500)))
            medians.append(waits[len(waits) // 2] * 1000)
            tails.append(waits[len(waits) * 99 // 100] * 1000)
        yield Measurement(f"{key}.p50", f"{what}{tool}, p50", "ms", tuple(medians), goals[0])
        yield Measurement(f"{key}.p99", f"{what}{tool}, p99", "ms", tuple(tails), goals[1])


def _wire_round_trips(node: Node, count: int) -> list[float]:
    batch = _core.encode([(None, _VALUE, (), time.time_ns() // 1_000_000)])
    frame = produce_frame("one", 0, batch)
    wire = Wire.connect(node.port)
    waits = []
    for number in range(count + 500):
        started = time.perf_counter()
        wire.ask(frame)
        if number >= 500:
            waits.append(time.perf_counter() - started)
    wire.close()
    return waits


def _round_trips(node: Node, count: int) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "log_level": 2})
    waits = []
    for number in range(count + 500):
        started = time.perf_counter()
        producer.produce("one", _VALUE, partition=0)
        left = producer.flush(30)
        assert left == 0, "a synchronous send was not acknowledged"
        if number >= 500:
            waits.append(time.perf_counter() - started)
    return waits


def _pipelined(node: Node, seconds: float, *, connections: int, window: int) -> float:
    wire = Wire.connect(node.port)
    before = sum(wire.log_end("many", number) for number in range(connections))
    started = time.monotonic()
    rate = pipelined_produce(
        node.port, "many", seconds=seconds, connections=connections, window=window, value=_VALUE
    )
    elapsed = time.monotonic() - started
    appended = sum(wire.log_end("many", number) for number in range(connections)) - before
    wire.close()
    # The sender counts responses without parsing them; the log shows whether they succeeded.
    assert abs(appended - rate * elapsed) <= 0.02 * appended, f"{appended} records were appended"
    return rate


def _librdkafka(node: Node, count: int) -> float:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "queue.buffering.max.messages": count + 1,
            "log_level": 2,
        }
    )
    started = time.monotonic()
    for _ in range(count):
        producer.produce("one", _VALUE, partition=0)
    assert producer.flush(120) == 0, "some records were not acknowledged"
    return count / (time.monotonic() - started)
