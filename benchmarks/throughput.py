"""Throughput of producers and consumers, with the CPU time and memory of the broker."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.clients import (
    console_consumer,
    consumer_performance,
    create_topic,
    librdkafka_readers,
    producer_performance,
)
from benchmarks.rows import Goal, Measurement, Session, at_least, at_most
from benchmarks.wire import JOIN_GROUP, Wire
from harness.nodes import Flavour, Node

_CODECS = ("none", "lz4", "zstd")


def throughput(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Produces with two record sizes and three codecs, then reads the uncompressed records."""
    node = session.fresh_node(flavour).start()
    create_topic(node, "warm")
    # Warm-up: users do not normally see a JVM that has compiled nothing yet.
    producer_performance(
        session.jars, node, "warm", records=session.size(1_000_000, 200_000), size=100
    )
    yield from _produce(session, node, size=100, goal=at_least(1.2))
    yield from _produce(session, node, size=1000, goal=at_least(1.5))
    yield from _consume(session, node)
    peak = node.resident_bytes(peak=True) / 1e6
    yield Measurement(
        "memory.load", "resident memory, highest under load", "MB", (peak,), at_most(0.2)
    )
    node.remove()


def _records(session: Session, size: int) -> int:
    return session.size(3_000_000, 500_000) if size == 100 else session.size(600_000, 150_000)


def _produce(session: Session, node: Node, *, size: int, goal: Goal) -> Iterator[Measurement]:
    records = _records(session, size)
    for codec in _CODECS:
        key = f"produce.{size}.{codec}"
        also = (f"consume.{size}", f"cpu.in.{size}", f"cpu.out.{size}") if codec == "none" else ()
        if not any(session.wants_below(each) for each in (key, *also)):
            continue
        topic = f"produce-{size}-{codec}"
        create_topic(node, topic)
        megabytes, rates, cpu = [], [], []
        for _ in range(session.samples(2, 1)):
            before = node.cpu_seconds()
            done = producer_performance(
                session.jars, node, topic, records=records, size=size, codec=codec
            )
            cpu.append((node.cpu_seconds() - before) / (records * size / 1e9))
            megabytes.append(done.megabytes_per_second)
            rates.append(done.records_per_second)
        what = f"produce {size} B, {codec}"
        yield Measurement(key, what, "MB/s", tuple(megabytes), goal, more_is_better=True)
        yield Measurement(f"{key}.records", what, "records/s", tuple(rates), more_is_better=True)
        if codec == "none":
            yield Measurement(
                f"cpu.in.{size}",
                f"broker CPU for each GB in, {size} B",
                "s/GB",
                tuple(cpu),
                at_most(0.4) if size == 1000 else None,
            )


def _consume(session: Session, node: Node) -> Iterator[Measurement]:
    wire = Wire.connect(node.port)
    has_groups = wire.supports(JOIN_GROUP)
    wire.close()
    for size in (100, 1000):
        topic = f"produce-{size}-none"
        records = _records(session, size) * session.samples(2, 1)
        if has_groups and session.wants(f"consume.{size}.java"):
            done = [
                consumer_performance(session.jars, node, topic, records=records)
                for _ in range(session.samples(2, 1))
            ]
            yield Measurement(
                f"consume.{size}.java",
                f"consume {size} B, ConsumerPerformance",
                "MB/s",
                tuple(each.megabytes_per_second for each in done),
                at_least(1.0),
                more_is_better=True,
            )
        rest = (f"consume.{size}.console", f"consume.{size}.librdkafka", f"cpu.out.{size}")
        if not any(session.wants_below(each) for each in rest):
            continue
        # The same Java consumer without a group, so that a broker without groups can be compared.
        done = [
            console_consumer(session.jars, node, topic, records=records, size=size)
            for _ in range(session.samples(2, 1))
        ]
        yield Measurement(
            f"consume.{size}.console",
            f"consume {size} B, ConsoleConsumer by partition",
            "MB/s",
            tuple(each.megabytes_per_second for each in done),
            at_least(1.0),
            more_is_better=True,
        )
        for readers in (1, 3):
            before = node.cpu_seconds()
            rates = librdkafka_readers(node, topic, partitions=1, records=records, readers=readers)
            cpu = (node.cpu_seconds() - before) / (readers * records * size / 1e9)
            who = f"{readers} librdkafka consumer{'s' if readers > 1 else ''}"
            yield Measurement(
                f"consume.{size}.librdkafka.{readers}",
                f"consume {size} B, {who}",
                "MB/s",
                (rates.megabytes_per_second,),
                at_least(1.0),
                more_is_better=True,
            )
        yield Measurement(
            f"cpu.out.{size}",
            f"broker CPU for each GB out, {size} B",
            "s/GB",
            (cpu,),
            at_most(0.8) if size == 1000 else None,
        )
