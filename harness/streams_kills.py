"""A topology with a join, windows and a processor, while everything around it is killed.

    python -m harness.streams_kills --minutes 10 --seed 7

Orders and payments are written to three nodes. At random moments kill -9 ends the driver of Spark
with its JVM, the Python workers, the node that leads an output or that coordinates transactions.
In the end, what consumers with read_committed see must be what a plain recomputation of the input
says: each joined pair once; each total of a customer once, in a sequence without gaps; the last
result of each window, and none twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.exactly_once import SETTINGS, Driver
from harness.streams_kills_app import (
    DEAD,
    INPUTS,
    ORDERS,
    OUTPUTS,
    PAID,
    PAYMENTS,
    TOTALS,
    WINDOWS,
    window_of,
)
from headwater.blocking import Consumer, Producer
from headwater.model import TopicPartition
from headwater.testing import HeadwaterCluster

VICTIMS = ("driver", "workers", "leader", "transactions")
_PARTITIONS = 2
_PATIENCE = 900.0
_CUSTOMERS = 20
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Expected:
    """Returns the expected output, by a plain recomputation."""

    paid: Counter[str] = field(default_factory=Counter)
    totals: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    windows: dict[tuple[str, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def order(self, customer: str, amount: int, at: datetime) -> None:
        known = self.totals[customer]
        known.append(amount + (known[-1] if known else 0))
        self.windows[customer, window_of(at)].append(amount)

    def wrong(self, seen: dict[str, list[Any]]) -> str | None:
        """Returns what is more than it should be, or other than it could be."""
        if seen[DEAD]:
            return f"{DEAD} has {seen[DEAD][:5]}"
        if more := Counter(seen[PAID]) - self.paid:
            return f"{PAID} has more than it should: {more.most_common(5)}"
        numbers = Counter((each["customer"], each["orders"]) for each in seen[TOTALS])
        if twice := [each for each, times in numbers.items() if times > 1]:
            return f"{TOTALS} has totals twice: {twice[:5]}"
        for each in seen[TOTALS]:
            totals = self.totals.get(each["customer"], [])
            number = each["orders"]
            if number > len(totals) or totals[number - 1] != each["amount"]:
                return f"{TOTALS} has {each}, which is not the sum of the first {number} orders"
        results = Counter(
            (each["customer"], each["number"], each["orders"]) for each in seen[WINDOWS]
        )
        if twice_ := [each for each, times in results.items() if times > 1]:
            return f"{WINDOWS} has results twice: {twice_[:5]}"
        for each in seen[WINDOWS]:
            amounts = self.windows.get((each["customer"], each["number"]), [])
            if each["orders"] > len(amounts) or each["amount"] > sum(amounts):
                return f"{WINDOWS} has {each}, which is more than there is"
        return None

    def is_complete(self, seen: dict[str, list[Any]]) -> bool:
        last = {(each["customer"], each["number"]): each for each in seen[WINDOWS]}
        return (
            len(seen[PAID]) == self.paid.total()
            and len(seen[TOTALS]) == sum(map(len, self.totals.values()))
            and len(last) == len(self.windows)
            and all(
                last[name]["orders"] == len(amounts) and last[name]["amount"] == sum(amounts)
                for name, amounts in self.windows.items()
            )
        )


class Run:
    def __init__(self, cluster: HeadwaterCluster, folder: Path, master: str, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._driver = Driver(cluster, folder, master, module="harness.streams_kills_app")
        self._expected = Expected()
        self._seen: dict[str, list[Any]] = {topic: [] for topic in OUTPUTS}
        self._next = 0
        self.kills: Counter[str] = Counter()

    def run(self, *, seconds: float, kills: int) -> None:
        """Kills for so long, or so often, whichever ends first; then compares."""
        places = [TopicPartition(topic, at) for topic in OUTPUTS for at in range(_PARTITIONS)]
        patience_ms = round(_PATIENCE * 1000)
        self._driver.start()
        try:
            with (
                Producer(self._cluster.bootstrap, delivery_timeout_ms=patience_ms) as producer,
                Consumer(
                    self._cluster.bootstrap,
                    isolation_level="read_committed",
                    auto_offset_reset="earliest",
                ) as consumer,
            ):
                consumer.assign(places)
                self._write(producer)
                self._await(consumer, complete=True)
                end = time.monotonic() + seconds
                victims: list[str] = []
                while time.monotonic() < end and self.kills.total() < kills:
                    self._write(producer)
                    pause = time.monotonic() + self._chance.random() * 8
                    while time.monotonic() < pause:
                        self._read(consumer)
                    victims = victims or self._chance.sample(VICTIMS, len(VICTIMS))
                    self._kill(victims.pop())
                    if self._chance.random() < 0.5:
                        # Half of the kills come before the last one is over.
                        self._await(consumer, complete=False)
                self._write(producer)
                self._await(consumer, complete=True)
        finally:
            self._driver.close()

    def _write(self, producer: Producer) -> None:
        for _ in range(self._chance.randrange(50, 300)):
            number = self._next
            self._next += 1
            customer = f"customer-{self._chance.randrange(_CUSTOMERS)}"
            amount = self._chance.randrange(1, 100)
            at = _START + timedelta(seconds=number)
            order = {"id": number, "customer": customer, "amount": amount, "at": at.isoformat()}
            producer.submit(ORDERS, json.dumps(order), key=customer)
            self._expected.order(customer, amount, at)
            for payment in range(self._chance.choice((0, 1, 1, 2))):
                later = at + timedelta(seconds=self._chance.randrange(600))
                paid = {"id": number, "payment": payment, "paid_at": later.isoformat()}
                producer.submit(PAYMENTS, json.dumps(paid), key=str(number))
                self._expected.paid[f"{number}:{payment}"] += 1
        producer.flush()

    def _kill(self, victim: str) -> None:
        began = time.monotonic()
        if victim == "driver":
            self._driver.kill()
            self._driver.start()
        elif victim == "workers":
            for pid in self._driver.workers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            topic = self._chance.choice(OUTPUTS) if victim == "leader" else "__transaction_state"
            node = self._cluster.wait_leader(topic, timeout=_PATIENCE)
            self._cluster.kill(node)
            self._cluster.wait_leader(topic, other_than=node, timeout=_PATIENCE)
            self._cluster.start(node)
            for name in (*INPUTS, *OUTPUTS, "__transaction_state", "__consumer_offsets"):
                for at in range(1 if name.startswith("__") else _PARTITIONS):
                    self._cluster.wait_isr(name, at, timeout=_PATIENCE)
        self.kills[victim] += 1
        print(f"{self.kills.total()}: {victim}, {time.monotonic() - began:.0f} s", flush=True)

    def _read(self, consumer: Consumer) -> None:
        for record in consumer.poll(timeout_ms=200):
            text = (record.value or b"").decode()
            is_json = record.topic in (TOTALS, WINDOWS)
            self._seen[record.topic].append(json.loads(text) if is_json else text)

    def _await(self, consumer: Consumer, *, complete: bool) -> None:
        """Waits until all is there, or until anything new is."""
        before = sum(map(len, self._seen.values()))
        deadline = time.monotonic() + _PATIENCE
        while True:
            self._read(consumer)
            wrong = self._expected.wrong(self._seen)
            assert wrong is None, f"{wrong}\n{self._driver.output()}"
            counts = {topic: len(values) for topic, values in self._seen.items()}
            if self._expected.is_complete(self._seen):
                print(f"complete: {self._next} orders, {counts}", flush=True)
                return
            if not complete and sum(counts.values()) > before:
                return
            self._driver.check()
            assert time.monotonic() < deadline, (
                f"not all came within {_PATIENCE:g} s: {self._next} orders, "
                f"{self._expected.paid.total()} pairs, {len(self._expected.windows)} windows, but "
                f"{counts}\n{self._driver.output()}"
            )


def run(
    seed: int,
    *,
    folder: Path,
    seconds: float = float("inf"),
    kills: int = 1_000_000,
    master: str = "local[2,4]",
) -> Counter[str]:
    """Returns how often what was killed. AssertionError if a result is lost, twice or wrong."""
    topics = dict.fromkeys((*INPUTS, *OUTPUTS), _PARTITIONS)
    with HeadwaterCluster(SETTINGS, data=folder / "nodes", topics=topics) as cluster:
        this = Run(cluster, folder, master, seed)
        this.run(seconds=seconds, kills=kills)
        return this.kills


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.streams_kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of killing (default: 10)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--master", default="local[2,4]", help="of Spark (default: local[2,4])")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes end with this one
    print(f"seed {options.seed}, {options.master}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headwater-streams-kills-") as folder:
        kills = run(
            options.seed,
            folder=Path(folder),
            seconds=options.minutes * 60,
            master=options.master,
        )
    print(f"{kills.total()} kills ({dict(kills)}): each result once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
