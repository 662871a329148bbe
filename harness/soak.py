"""`python -m harness.soak`: our clients through a proxy that cuts, delays and stalls, then checked.

Idempotent producers and a group of consumers that come and go work for some minutes against a
broker (Headwater, or Apache Kafka with --broker kafka) that they reach only through
`UnrulyProxy`; with --kill the broker is killed and started again as well. Then the proxy is kind,
everything must be delivered, and `record_checker` looks for what was lost, doubled or out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from harness import kafka_jars
from harness.nodes import Flavour, Headwater, Kafka, Node, end_nodes_when_terminated
from harness.record_checker import History, anomalies
from harness.unruly_proxy import UnrulyProxy
from headwater import (
    Admin,
    ClientError,
    Consumer,
    DeliveryTimedOut,
    Producer,
    RebalanceListener,
    TopicPartition,
)

TOPIC, GROUP = "soak", "soak"
Protocol = Literal["classic", "consumer"]
PARTITIONS = 6
_PRODUCERS, _CONSUMERS = 2, 3
_OUTSTANDING_MAX = 500
_KILL_EVERY_SECONDS = 15.0
PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class Run:
    """The state that all actors share."""

    bootstrap: str
    protocol: Protocol
    random: Random
    history: History = field(default_factory=History)
    counts: Counter[str] = field(default_factory=Counter)
    sending: bool = True
    reading: bool = True


async def soak(
    flavour: Flavour, folder: Path, *, seconds: float, seed: int, protocol: Protocol, kills: bool
) -> Run:
    """One run; the caller looks at its history."""
    node = Node(flavour, folder)
    proxy = UnrulyProxy(f"127.0.0.1:{node.port}", seed=seed)
    await proxy.start()
    node.settings["advertised.listeners"] = f"PLAINTEXT://{proxy.address}"
    node.settings["group.initial.rebalance.delay.ms"] = "0"
    node.settings["group.consumer.session.timeout.ms"] = "6000"
    node.settings["group.consumer.min.session.timeout.ms"] = "6000"
    await asyncio.to_thread(node.start)
    run = Run(proxy.address, protocol, Random(seed))
    try:
        proxy.is_kind = True
        async with Admin(proxy.address) as admin:
            await admin.create_topic(TOPIC, partitions=PARTITIONS)
        proxy.is_kind = False
        producers = [asyncio.create_task(produce(run, number)) for number in range(_PRODUCERS)]
        consumers = [asyncio.create_task(consume(run, number)) for number in range(_CONSUMERS)]
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _KILL_EVERY_SECONDS))
            raise_if_failed(producers + consumers)
            if kills and left > _KILL_EVERY_SECONDS:
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
                run.counts["broker killed"] += 1
        proxy.is_kind = True
        run.sending = False
        await asyncio.wait_for(asyncio.gather(*producers), PATIENCE_SECONDS)
        run.history.final = await read_all(run)
        await until_all_given(run, consumers)
        run.reading = False
        await asyncio.wait_for(asyncio.gather(*consumers), PATIENCE_SECONDS)
        run.counts.update({f"proxy: {what}": count for what, count in proxy.done.items()})
        return run
    finally:
        await proxy.stop()
        await asyncio.to_thread(node.stop)


async def produce(run: Run, number: int) -> None:
    """Sends as fast as answers come, and remembers what became of each record."""
    numbers = Counter[int]()
    outstanding: set[asyncio.Task[None]] = set()
    async with Producer(run.bootstrap, delivery_timeout_ms=110_000, linger_ms=2) as producer:
        while run.sending:
            partition = run.random.randrange(PARTITIONS)
            value = f"p{number}/{partition}:{numbers[partition]}"
            numbers[partition] += 1
            task = asyncio.create_task(_send(run, producer, partition, value))
            outstanding.add(task)
            task.add_done_callback(outstanding.discard)
            if len(outstanding) >= _OUTSTANDING_MAX:
                await asyncio.wait(outstanding, return_when=asyncio.FIRST_COMPLETED)
            elif run.random.random() < 0.02:
                await asyncio.sleep(run.random.random() * 0.01)
        await producer.flush()
        await asyncio.gather(*outstanding)


async def _send(run: Run, producer: Producer, partition: int, value: str) -> None:
    try:
        done = await producer.send(TOPIC, value=value, partition=partition)
    except DeliveryTimedOut:
        run.counts["sends without an answer"] += 1
    except ClientError as error:
        run.counts[f"sends failed: {type(error).__name__}"] += 1
    else:
        run.history.acknowledged[value] = ((done.topic, done.partition), done.offset)
        run.counts["sends acknowledged"] += 1


class _Assignments(RebalanceListener):
    """Counts them: after each one positions may go back to what was committed."""

    count = 0

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self.count += 1


async def consume(run: Run, number: int) -> None:
    """Is in the group for some seconds, closes, and comes back under another name."""
    life = 0
    while run.reading:
        life += 1
        name = f"c{number}.{life}"
        ends = time.monotonic() + 5 + run.random.random() * 15
        assignments = _Assignments()
        async with Consumer(
            run.bootstrap,
            group=GROUP,
            topics=[TOPIC],
            client_id=name,
            group_protocol=run.protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            listener=assignments,
        ) as consumer:
            while run.reading and (time.monotonic() < ends or not run.sending):
                for record in await consumer.poll(timeout_ms=200):
                    assert record.value is not None
                    run.history.given.append(
                        (
                            name,
                            assignments.count,
                            (record.topic, record.partition),
                            record.offset,
                            record.value.decode(),
                        )
                    )
                    run.counts["records given"] += 1
        run.counts["consumers closed"] += 1


async def read_all(run: Run) -> dict[tuple[str, int], list[tuple[int, str]]]:
    found: dict[tuple[str, int], list[tuple[int, str]]] = {
        (TOPIC, partition): [] for partition in range(PARTITIONS)
    }
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    async with Consumer(run.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = await consumer.end_offsets(*places)
        while {place: await consumer.position(place) for place in places} != ends:
            for record in await consumer.poll(timeout_ms=1000):
                assert record.value is not None
                found[record.topic, record.partition].append((record.offset, record.value.decode()))
    return found


async def until_all_given(run: Run, consumers: list[asyncio.Task[None]]) -> None:
    wanted = {
        (place, offset) for place, records in run.history.final.items() for offset, _ in records
    }
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        raise_if_failed(consumers)
        if wanted <= {(place, offset) for _, _, place, offset, _ in run.history.given}:
            return
        await asyncio.sleep(0.5)


def raise_if_failed(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


def report(run: Run) -> int:
    for what, count in sorted(run.counts.items()):
        print(f"  {what}: {count:,}")
    found = anomalies(run.history)
    for kind, cases in found.items():
        print(f"{kind}: {len(cases)}; {'; '.join(cases[:3])}")
    if not found:
        print("lost 0, duplicate 0, out of order 0, unseen 0")
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="consumer")
    parser.add_argument("--broker", choices=("headwater", "kafka"), default="headwater")
    parser.add_argument("--kill", action="store_true", help="kill -9 the broker now and then")
    options = parser.parse_args()
    end_nodes_when_terminated()
    flavour: Flavour = (
        Headwater()
        if options.broker == "headwater"
        else Kafka(kafka_jars.jars(kafka_jars.kafka_version()))
    )
    print(f"seed {options.seed}, {options.broker}, {options.protocol} protocol")
    with tempfile.TemporaryDirectory() as folder:
        run = asyncio.run(
            soak(
                flavour,
                Path(folder) / "node",
                seconds=options.minutes * 60,
                seed=options.seed,
                protocol=options.protocol,
                kills=options.kill,
            )
        )
    return report(run)


if __name__ == "__main__":
    sys.exit(main())
