"""Spark's exactly-once sink while everything around it is killed: driver, executors, brokers.

    python -m harness.exactly_once --rounds 100 --seed 7

Four queries read one topic on three nodes: a copy and running counts, each micro-batch of which is
one transaction, and a copy and the distinct values by the plain sink, with a transaction for each
task. A round writes records, stops a driver or a task at a random step of a transaction, kills -9
what chance has chosen, starts it again, and waits until all is through. What consumers with
read_committed see must then be the input: each record once, each count once. At the end, consumers
of other makers must see the same.

The executor of a local master is a part of its driver. The last rounds have a master with executors
that are processes of their own, on which the queries go on from their checkpoints, and kill those.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiokafka
import confluent_kafka

from harness.exactly_once_queries import (
    INPUT,
    KEYS,
    OUTPUTS,
    STEPS,
    TASKS_COPY,
    TASKS_DISTINCT,
    WHOLE_COPY,
    WHOLE_COUNTS,
)
from headwater.blocking import Consumer, Producer
from headwater.model import TopicPartition
from headwater.testing import HeadwaterCluster

VICTIMS = ("driver", "worker", "leader", "transactions", "offsets")
_ROOT = Path(__file__).resolve().parents[1]
_SITE = Path(__file__).with_name("spark_site")
_QUERIES = "harness.exactly_once_queries"
_PARTITIONS = 3
_TOPICS = (INPUT, *OUTPUTS)
_LOCAL = "local[2,4]"
_EXECUTORS = "local-cluster[2,1,1024]"
_PATIENCE = 400.0
_STEP_SECONDS = 200.0
SETTINGS = {
    # One coordinator for all, so that it can be found and killed.
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    # A kill is noticed without it; the pauses of a busy machine are no kills.
    "broker.session.timeout.ms": "30000",
}
_WHERE = {
    "leader": WHOLE_COPY,
    "transactions": "__transaction_state",
    "offsets": "__consumer_offsets",
}


@dataclass(slots=True)
class Tally:
    """The input, and the output that must follow from it."""

    numbers: Counter[str] = field(default_factory=Counter)

    def wrong(self, seen: dict[str, list[str]]) -> str | None:
        """Returns what is more than it should be, or other than it could be."""
        for topic in (WHOLE_COPY, TASKS_COPY, TASKS_DISTINCT):
            most = Counter(set(self.numbers)) if topic == TASKS_DISTINCT else self.numbers
            if more := Counter(seen[topic]) - most:
                return f"{topic} has more than it should: {more.most_common(5)}"
        counts = Counter(seen[WHOLE_COUNTS])
        if twice := [text for text, times in counts.items() if times > 1]:
            return f"{WHOLE_COUNTS} has counts twice: {twice[:5]}"
        ends = self._counts()
        for text in counts:
            key, _, count = text.partition("=")
            if int(count) > ends.get(key, 0):
                return f"{WHOLE_COUNTS} has {text}, but there are {ends.get(key, 0)}"
        return None

    def is_complete(self, seen: dict[str, list[str]]) -> bool:
        copies = len(seen[WHOLE_COPY]) == len(seen[TASKS_COPY]) == self.numbers.total()
        ends = {f"{key}={count}" for key, count in self._counts().items()}
        return (
            copies
            and len(seen[TASKS_DISTINCT]) == len(self.numbers)
            and ends <= set(seen[WHOLE_COUNTS])
        )

    def _counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for number, times in self.numbers.items():
            counts[str(int(number) % KEYS)] += times
        return counts


class Driver:
    """The process of the queries, with its JVM and its workers, over any number of starts."""

    def __init__(
        self,
        cluster: HeadwaterCluster,
        folder: Path,
        master: str,
        *,
        module: str = _QUERIES,
    ) -> None:
        self._command = [sys.executable, "-m", module]
        self._paths = [_ROOT / "src", _ROOT]
        if module == _QUERIES:
            self._paths.append(_SITE)  # where its processes are told of the steps
        self._command += [cluster.bootstrap, str(folder)]
        self._master = master
        self._output = folder / "driver.out"
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()

    def start(self) -> None:
        paths = os.pathsep.join(map(str, self._paths))
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command, self._master],
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.add(self._process.pid)

    def move(self, master: str) -> None:
        """Kills the driver and starts it on another master."""
        self.kill()
        self._master = master
        self.start()

    def kill(self) -> None:
        """kill -9 of the driver, its JVM and its executors. Python workers are in groups of their
        own: they may go on for a moment."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def check(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the driver has ended:\n{self.output()}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def workers(self) -> list[int]:
        """Returns the workers of Python that run tasks. They are forks of Spark's daemons."""
        found = self._running(b"pyspark.daemon", b"pyspark.worker")
        return [pid for pid in found if b"pyspark.daemon" in _command_of(_parent(pid))]

    def executors(self) -> list[int]:
        """Returns the executors that are processes of their own."""
        return self._running(b"org.apache.spark.executor.CoarseGrainedExecutorBackend")

    def _running(self, *words: bytes) -> list[int]:
        """Returns its processes whose command has all these words."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            pid = int(process.name)
            if set(words) <= set(_command_of(pid)):
                with suppress(ProcessLookupError):
                    if os.getsid(pid) in self._sessions:
                        found.append(pid)
        return found

    def close(self) -> None:
        self.kill()
        for pid in self.workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def output(self) -> str:
        return self._output.read_text(errors="replace")[-4000:]


def _command_of(pid: int) -> list[bytes]:
    """Returns no words for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    """Returns 0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Steps:
    """Stops a process of Spark at a step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "steps"
        self._folder.mkdir()

    def arm(self, step: str) -> None:
        for each in self._folder.iterdir():
            each.unlink()
        (self._folder / step).touch()

    def reached(self) -> int | None:
        """Returns the process that waits at the step."""
        reached = self._folder / "reached"
        return int(reached.read_text()) if reached.exists() else None

    def go_on(self) -> None:
        (self._folder / "go").touch()


class Run:
    def __init__(self, cluster: HeadwaterCluster, folder: Path, master: str, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._steps = Steps(folder)
        self._driver = Driver(cluster, folder, master)
        self._tally = Tally()
        self._seen: dict[str, list[str]] = {topic: [] for topic in OUTPUTS}
        self._next = 0
        self.done: Counter[str] = Counter()

    def rounds(self, count: int, executors: int, seconds: float) -> None:
        """`executors` is how many of the `count` rounds kill an executor: the last ones."""
        patience_ms = round(_PATIENCE * 1000)
        places = [TopicPartition(topic, at) for topic in OUTPUTS for at in range(_PARTITIONS)]
        plan = [*self._plan(VICTIMS, count - executors), *self._plan(("executor",), executors)]
        end = time.monotonic() + seconds
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
                self._await_all(consumer)
                for number, (step, victim) in enumerate(plan, start=1):
                    began = time.monotonic()
                    if began > end:
                        break
                    if number == count - executors + 1:
                        self._driver.move(_EXECUTORS)
                    outcome = self._round(producer, consumer, step, victim)
                    self.done[f"{victim} at {step}{outcome}"] += 1
                    seconds = time.monotonic() - began
                    print(f"{number}: {victim} at {step}{outcome}, {seconds:.0f} s", flush=True)
            self._compare()
        finally:
            self._driver.close()

    def _plan(self, victims: Iterable[str], count: int) -> list[tuple[str, str]]:
        # Every step is in some round, and every victim, before one comes again.
        steps = self._shuffled(STEPS, count)
        return list(zip(steps, self._shuffled(victims, count), strict=True))

    def _shuffled(self, choices: Iterable[str], count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            found += self._chance.sample(list(choices), k=len(list(choices)))
        return found[:count]

    def _write(self, producer: Producer) -> None:
        for _ in range(self._chance.randrange(50, 400)):
            value = str(self._next)
            if self._next and self._chance.random() < 0.1:
                value = str(self._chance.randrange(self._next))  # once more
            else:
                self._next += 1
            producer.submit(INPUT, value, partition=self._chance.randrange(_PARTITIONS))
            self._tally.numbers[value] += 1
        producer.flush()

    def _round(self, producer: Producer, consumer: Consumer, step: str, victim: str) -> str:
        self._steps.arm(step)
        if step in ("whole.before-init", "whole.after-init"):
            # A driver comes by there only when it is new.
            self._driver.kill()
            self._driver.start()
        self._write(producer)
        there, deadline = None, time.monotonic() + _STEP_SECONDS
        while there is None and time.monotonic() < deadline:
            self._driver.check()
            time.sleep(0.02)
            there = self._steps.reached()
        outcome = "" if there is not None else " (not reached)"
        again = self._kill(victim, there)
        self._steps.go_on()
        again()
        self._await_all(consumer)
        return outcome

    def _kill(self, victim: str, there: int | None) -> Callable[[], None]:
        """Kills, and returns what starts it again."""
        if victim == "driver":
            self._driver.kill()
            return self._driver.start
        if victim == "worker":
            # The driver waits itself at some steps. Then all workers die.
            for pid in self._driver.workers() if there in (None, self._driver.pid) else [there]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return lambda: None
        if victim == "executor":
            self._kill_executors(there)
            return lambda: None  # Spark starts another one itself
        topic = _WHERE[victim]
        node = self._cluster.wait_leader(topic, timeout=_PATIENCE)
        self._cluster.kill(node)

        def start() -> None:
            self._cluster.wait_leader(topic, other_than=node, timeout=_PATIENCE)
            self._cluster.start(node)
            for name in (*_TOPICS, "__transaction_state", "__consumer_offsets"):
                for at in range(_PARTITIONS if name in _TOPICS else 1):
                    self._cluster.wait_isr(name, at, timeout=_PATIENCE)

        return start

    def _kill_executors(self, there: int | None) -> None:
        """Kills the executor of the worker that waits; all executors if the driver waits."""
        deadline = time.monotonic() + _STEP_SECONDS
        while not (executors := self._driver.executors()):
            # A driver that has just started may be at its step before they have.
            self._driver.check()
            assert time.monotonic() < deadline, f"no executor:\n{self._driver.output()}"
            time.sleep(0.02)
        its_own = _parent(_parent(there)) if there is not None else 0
        for pid in [its_own] if its_own in executors else executors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _await_all(self, consumer: Consumer) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            for record in consumer.poll(timeout_ms=500):
                self._seen[record.topic].append((record.value or b"").decode())
            wrong = self._tally.wrong(self._seen)
            assert wrong is None, f"{wrong}\n{self._driver.output()}"
            if self._tally.is_complete(self._seen):
                return
            self._driver.check()
            counts = {topic: len(values) for topic, values in self._seen.items()}
            assert time.monotonic() < deadline, (
                f"not all came within {_PATIENCE:g} s: {self._tally.numbers.total()} records of "
                f"{len(self._tally.numbers)} values, but {counts}\n{self._driver.output()}"
            )

    def _compare(self) -> None:
        """Has consumers of other makers read it all again."""
        for maker, read in (("librdkafka", read_by_librdkafka), ("aiokafka", read_by_aiokafka)):
            seen = read(self._cluster.bootstrap)
            for topic in OUTPUTS:
                ours, theirs = Counter(self._seen[topic]), Counter(seen[topic])
                assert ours == theirs, f"{maker} reads other records of {topic}: {theirs - ours}"
        print(f"{self._tally.numbers.total()} records; ours, librdkafka and aiokafka agree")


def read_by_librdkafka(bootstrap: str) -> dict[str, list[str]]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    places = [(topic, at) for topic in OUTPUTS for at in range(_PARTITIONS)]
    consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])
    seen: dict[str, list[str]] = {topic: [] for topic in OUTPUTS}
    ended: set[tuple[str | None, int | None]] = set()
    while len(ended) < len(places):
        message = consumer.poll(60)
        assert message is not None, f"librdkafka has not read all: {len(ended)} partitions ended"
        if message.error() is None:
            seen[str(message.topic())].append((message.value() or b"").decode())
        else:
            ended.add((message.topic(), message.partition()))
    consumer.close()
    return seen


def read_by_aiokafka(bootstrap: str) -> dict[str, list[str]]:
    return asyncio.run(_read_by_aiokafka(bootstrap))


async def _read_by_aiokafka(bootstrap: str) -> dict[str, list[str]]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    try:
        places = [aiokafka.TopicPartition(topic, at) for topic in OUTPUTS for at in range(3)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        seen: dict[str, list[str]] = {topic: [] for topic in OUTPUTS}
        deadline = time.monotonic() + _PATIENCE
        while any([await consumer.position(place) < ends[place] for place in places]):
            assert time.monotonic() < deadline, "aiokafka has not read all"
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                seen[place.topic] += [record.value.decode() for record in records]
    finally:
        await consumer.stop()
    return seen


def run(
    rounds: int,
    seed: int,
    *,
    folder: Path,
    executors: int = 0,
    master: str = _LOCAL,
    seconds: float = float("inf"),
) -> Counter[str]:
    """Returns how often what was killed where. AssertionError if a record is lost or twice."""
    topics = dict.fromkeys(_TOPICS, _PARTITIONS)
    with HeadwaterCluster(SETTINGS, data=folder / "nodes", topics=topics) as cluster:
        this = Run(cluster, folder, master, seed)
        this.rounds(rounds, executors, seconds)
        return this.done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.exactly_once", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--executors", type=int, help="rounds that kill one (default: one in six)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no round later")
    parser.add_argument("--master", default=_LOCAL, help=f"of the others (default: {_LOCAL})")
    options = parser.parse_args()
    executors = options.rounds // 6 if options.executors is None else options.executors
    if not 0 <= executors <= options.rounds:
        parser.error(f"--executors {executors} of --rounds {options.rounds}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes end with this one
    print(f"seed {options.seed}, {options.master}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headwater-exactly-once-") as folder:
        done = run(
            options.rounds,
            options.seed,
            folder=Path(folder),
            executors=executors,
            master=options.master,
            seconds=options.minutes * 60,
        )
    missed = sum(count for what, count in done.items() if "not reached" in what)
    print(f"{done.total()} rounds, {missed} in which no step was reached: each record once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
