"""Topologies of Headwater's streams, of Kafka Streams and of Quix Streams on the same broker.

Each engine runs as a process with a node of its own, reads `input` and writes `output`. It is warm
before anything is measured: what counts is the time from the first record that is sent to the last
result that a reader of committed records gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.clients import create_topic
from benchmarks.rows import Comparison, Session, at_least, at_most, value_at_most
from harness import kafka_jars
from harness.nodes import HEADWATER, Flavour, Node, NodeFailed
from harness.spark_jars import spark_jars
from headwater import Consumer, Producer

if TYPE_CHECKING:
    import pyarrow as pa

_OURS, _KAFKA, _QUIX, _REAL_TIME = "headwater", "kafka-streams", "quix-streams", "real-time"
_QUIX_VERSION = "3.28.1"
_HERE = Path(__file__).parent
_INPUT, _OUTPUT = "input", "output"
_PARTITIONS = 2  # in real time each takes a core
_KEYS = 10_000
_VALUE = "x" * 100
_ROWS_MAX = 50_000  # of a batch that is sent, and of one that is read
_PAUSE = 0.1  # between the records whose latency is measured
_SAMPLE_SECONDS = 600.0
# A slow engine gets fewer records, so that each takes a few seconds.
_SHARE = {_OURS: 1.0, _KAFKA: 1.0, _QUIX: 0.1}


def streams(session: Session, flavour: Flavour) -> Iterator[Comparison]:
    everybody = (_OURS, _KAFKA, _QUIX)
    loads = (
        ("map", "map 100 B without state", at_least(1.0)),
        ("count", f"count in windows, {_KEYS:,} keys", at_least(0.5)),
    )
    for action, what, goal in loads:
        if session.wants(f"streams.{action}"):
            yield Comparison(
                f"streams.{action}",
                f"{what}, exactly once",
                "records/s",
                {name: _throughput(session, flavour, name, action) for name in everybody},
                {_KAFKA: goal, _QUIX: at_least(5.0)},
                more_is_better=True,
            )
    if not session.wants_below("streams.latency"):
        return
    found = {name: _latency(session, flavour, name) for name in (*everybody, _REAL_TIME)}
    yield Comparison(
        "streams.latency",
        "one record through a map, exactly once, p50",
        "ms",
        {name: found[name] for name in everybody},
        {_KAFKA: value_at_most(300.0), _QUIX: at_most(0.2)},
    )
    yield Comparison(
        "streams.latency.real-time",
        "one record through a map, in real time, p50",
        "ms",
        {_OURS: found[_REAL_TIME], _KAFKA: found[_KAFKA]},
        {_KAFKA: at_most(1.0)},
    )


def _throughput(session: Session, flavour: Flavour, engine: str, action: str) -> tuple[float, ...]:
    share = _SHARE[engine]
    count = int(session.size(2_000_000, 300_000) * share)
    warm = int(session.size(1_000_000, 100_000) * share)
    with _running(session, flavour, engine, action) as running:
        return asyncio.run(_rates(running, action, warm, count, session.samples(3, 1)))


def _latency(session: Session, flavour: Flavour, engine: str) -> tuple[float, ...]:
    with _running(session, flavour, engine, "map") as running:
        return asyncio.run(_delays(running, session.size(100, 30), session.samples(3, 1)))


class Tally(Protocol):
    """How many records the results that have come stand for."""

    seen: int

    def add(self, table: pa.Table) -> None: ...


@dataclass(slots=True)
class _Rows:
    """Each result is one record."""

    seen: int = 0

    def add(self, table: pa.Table) -> None:
        self.seen += table.num_rows


@dataclass(slots=True)
class _Counts:
    """Each result is the latest count of a key."""

    seen: int = 0
    latest: dict[bytes, int] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            count = int(value)
            self.seen += count - self.latest.get(key, 0)
            self.latest[key] = count


async def _rates(
    running: _Running, action: str, warm: int, count: int, samples: int
) -> tuple[float, ...]:
    tally: Tally = _Rows() if action == "map" else _Counts()
    # All records are in one window. They are not older than the retention of their topic.
    window = int(time.time()) // 3600 * 3600 * 1000
    rates = []
    async with _clients(running) as (producer, consumer):
        sent = 0
        for number, size in enumerate((warm, *[count] * samples)):
            batches = list(_batches(sent, size, window))
            started = time.perf_counter()
            for batch in batches:
                await producer.submit_arrow(batch, topic=_INPUT)
            await producer.flush()
            sent += size
            while tally.seen < sent:
                running.check(started, f"{tally.seen} of {sent} results came")
                tally.add(await consumer.poll_arrow(rows_max=_ROWS_MAX, timeout_ms=1000))
            if number:
                rates.append(size / (time.perf_counter() - started))
            assert tally.seen == sent, f"{tally.seen} results of {sent} records"
    return tuple(rates)


def _batches(first: int, count: int, window: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for begin in range(first, first + count, _ROWS_MAX):
        numbers = range(begin, min(begin + _ROWS_MAX, first + count))
        yield pa.record_batch(
            {
                "key": [b"%d" % (number % _KEYS) for number in numbers],
                "value": [_VALUE.encode()] * len(numbers),
                "timestamp": pa.array(
                    [window + number // 10_000 for number in numbers], pa.timestamp("ms", "UTC")
                ),
            }
        )


async def _delays(running: _Running, count: int, samples: int) -> tuple[float, ...]:
    """Sends a record every tenth of a second, whatever comes back."""
    async with _clients(running) as (producer, consumer):
        await _delays_of(running, producer, consumer, "first", 1)
        await _delays_of(running, producer, consumer, "warm", 20)
        return tuple(
            [
                statistics.median(
                    await _delays_of(running, producer, consumer, f"sample-{sample}", count)
                )
                for sample in range(samples)
            ]
        )


async def _delays_of(
    running: _Running, producer: Producer, consumer: Consumer, name: str, count: int
) -> list[float]:
    """Returns after how many milliseconds the result of each record could be read."""
    sent: dict[bytes, float] = {}
    delays: list[float] = []
    started = time.perf_counter()

    async def read() -> None:
        while len(delays) < count:
            running.check(started, f"{len(delays)} of {count} results came")
            records = await consumer.poll(timeout_ms=1000)
            now = time.perf_counter()
            # In real time results may come twice: the first one counts.
            begun = [sent.pop(record.value, None) for record in records]
            delays.extend((now - each) * 1000 for each in begun if each is not None)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        for number in range(count):
            text = f"{name}-{number}"
            sent[text.upper().encode()] = time.perf_counter()
            await producer.send(_INPUT, text, key=text)
            await asyncio.sleep(_PAUSE)
    return delays


@contextlib.asynccontextmanager
async def _clients(running: _Running) -> Any:
    """A producer of the input and a reader of what was committed to the output."""
    async with (
        Producer(running.node.bootstrap) as producer,
        Consumer(
            running.node.bootstrap,
            topics=[_OUTPUT],
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        yield producer, consumer


@dataclass(slots=True)
class _Running:
    """The process of an engine, and its node."""

    node: Node
    process: subprocess.Popen[bytes]
    output: Path

    def check(self, started: float, what: str) -> None:
        """Raises if the engine has ended, or takes too long."""
        late = time.perf_counter() - started > _SAMPLE_SECONDS
        if late or self.process.poll() is not None:
            last = "\n".join(self.output.read_text(errors="replace").splitlines()[-15:])
            raise NodeFailed(f"{'too slow' if late else 'ended'}: {what}\n{last}")


@contextlib.contextmanager
def _running(session: Session, flavour: Flavour, engine: str, action: str) -> Iterator[_Running]:
    node = session.fresh_node(flavour).start()
    try:
        create_topic(node, _INPUT, _PARTITIONS)
        create_topic(node, _OUTPUT, _PARTITIONS)
        output = node.folder / "engine.out"
        command = _COMMANDS[engine](session, node, action)
        with output.open("wb") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=node.folder
            )
        try:
            yield _Running(node, process, output)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        node.remove()


def _ours(_: Session, node: Node, action: str, *more: str) -> list[str]:
    command = [str(HEADWATER), "streams", "run", str(_HERE / "streams_topologies.py")]
    command += ["--app", action, "--bootstrap", node.bootstrap]
    return [*command, "--checkpoints", str(node.folder / "state"), "--master", "local[2]", *more]


def _real_time(session: Session, node: Node, _: str) -> list[str]:
    jars = ",".join(map(str, spark_jars()))
    return _ours(session, node, "real-time", "--conf", f"spark.jars={jars}")


def _kafka_streams(session: Session, node: Node, action: str) -> list[str]:
    version = kafka_jars.kafka_version()
    state = str(node.folder / "state")
    return kafka_jars.java_command(
        session.jars,
        str(_HERE / "java" / "StreamsLoad.java"),
        *(node.bootstrap, state, action),
        more=(kafka_jars.streams(version),),
    )


def _quix(_: Session, node: Node, action: str) -> list[str]:
    environment = kafka_jars.cache_folder() / f"quix-{_QUIX_VERSION}"
    python = environment / "bin" / "python"
    if not (environment / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        wanted = f"quixstreams=={_QUIX_VERSION}"
        subprocess.run([python, "-m", "pip", "install", "-q", wanted], check=True)
        (environment / ".complete").touch()
    program = str(_HERE / "quix_load.py")
    return [str(python), program, node.bootstrap, str(node.folder / "state"), action]


_COMMANDS: dict[str, Callable[[Session, Node, str], list[str]]] = {
    _OURS: _ours,
    _REAL_TIME: _real_time,
    _KAFKA: _kafka_streams,
    _QUIX: _quix,
}
