"""Keyed machines of ours against topologies of Kafka Streams in its TopologyTestDriver.

A machine is what runs in Spark's workers for functions of Python. Both sides get the same generated
records in the same order: out of order, late, without keys, without values. Of a table what it has
in the end must be equal, of a stream all of its records, with their times.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness import kafka_jars
from headwater.streams.joins import StreamTableJoin, TableTableJoin
from headwater.streams.machine import KeyedMachine
from headwater.streams.processor_test import MachineTest
from headwater.streams.tables import Aggregate, Fold
from headwater.streams.types import shape_of
from headwater.streams.windowing import SessionAggregate, SlidingAggregate, WindowedAggregate

_PROGRAM = Path(__file__).parent / "java" / "Topologies.java"
_BASE = datetime(2026, 1, 1, tzinfo=UTC)
_KEYS = ("k0", "k1", "k2", "k3")
_WORDS = ("a", "bb", "ccc", "x", "xy", "a bb", "bb ccc bb")
_NUMBERS = ("1", "2", "30", "-4", "500")
_ORDER = 2000  # how far a record that is not late may be behind the latest one
_STEP = 3000  # by which time grows at most, from a record to the next
_SEEDS = 3
_BATCHES = 6
_BEGIN = "begin "  # a topology, in the input and the output of the program
_END = "~"  # the key of the records that bring time to its end

pytestmark = pytest.mark.timeout(600)


# One record, as both sides get it; times are milliseconds after the start.
@dataclass(frozen=True, slots=True)
class Given:
    topic: str
    key: str | None
    value: str | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A machine, and the records that it and the topology of the same name get.

    late: whether some records come after their windows were closed, and by how much
    """

    machine: Callable[[], KeyedMachine]
    topics: str = "a"
    values: Sequence[str] = _WORDS
    nulls: bool = False
    null_keys: bool = True
    is_table: bool = True
    late: bool = False
    late_by: tuple[int, int] = (0, 20_000)


def both(left: str | None, right: str | None) -> str:
    return f"{left or 'null'}+{right or 'null'}"


def plus(total: int, value: str) -> int:
    return total + int(value)


def minus(total: int, value: str) -> int:
    return total - int(value)


def one_more(count: int, value: str) -> int:
    return count + 1


def together(one: int, other: int) -> int:
    return one + other


def texts(left: Any, right: Any) -> dict[str, str]:
    return {"value": both(left and left["value"], right and right["value"])}


_TEXT, _INT = shape_of(str), shape_of(int)
_COUNT = Fold((one_more,), lambda: 0, merge=together, values=(_TEXT,), shape=_INT)
_SUM = Fold((plus,), lambda: 0, minus, values=(_TEXT,), shape=_INT)
_REDUCE = Fold((both,), values=(_TEXT,), shape=_TEXT, first=True)
_COGROUP = Fold(
    (lambda s, v: f"{s}a{v}", lambda s, v: f"{s}b{v}"),
    lambda: "",
    values=(_TEXT, _TEXT),
    shape=_TEXT,
)


def _table(machine: Callable[[], KeyedMachine], topics: str = "a", **more: Any) -> Case:
    return Case(machine=machine, topics=topics, nulls=True, **more)


def _windows(machine: Callable[[], KeyedMachine], **more: Any) -> Case:
    # A record without a value is in no window, as Kafka's documentation has it. Its code counts it
    # in windows of all kinds but sliding ones.
    return Case(machine=machine, late=True, **more)


def _sessions(machine: Callable[[], KeyedMachine]) -> Case:
    # In Kafka a late record that joins an open session brings back closed ones beside it, as its
    # store keeps them for a day. Here they are gone. So these are too late for any.
    return _windows(machine, late_by=(20_000, 40_000))


CASES = {
    "count": _table(lambda: Aggregate(_COUNT)),
    "sum": _table(lambda: Aggregate(_SUM), values=_NUMBERS),
    "reduce": _table(lambda: Aggregate(_REDUCE)),
    "cogroup": _table(lambda: Aggregate(_COGROUP), "ab"),
    "tumbling-reduce": _windows(lambda: WindowedAggregate(_REDUCE, 10_000, 10_000, 2000)),
    "cogroup-tumbling": Case(
        machine=lambda: WindowedAggregate(_COGROUP, 10_000, 10_000, 2000), topics="ab"
    ),
    "tumbling-count": _windows(lambda: WindowedAggregate(_COUNT, 10_000, 10_000, 2000)),
    "tumbling-count-final": _windows(
        lambda: WindowedAggregate(_COUNT, 10_000, 10_000, 2000, final=True)
    ),
    "hopping-count": _windows(lambda: WindowedAggregate(_COUNT, 10_000, 5000, 2000)),
    "hopping-count-final": _windows(
        lambda: WindowedAggregate(_COUNT, 10_000, 5000, 2000, final=True)
    ),
    "session-count": _sessions(lambda: SessionAggregate(_COUNT, 5000, 2000)),
    "session-count-final": _sessions(lambda: SessionAggregate(_COUNT, 5000, 2000, final=True)),
    "sliding-count": _windows(lambda: SlidingAggregate(_COUNT, 5000, 2000), nulls=True),
    "sliding-count-final": _windows(
        lambda: SlidingAggregate(_COUNT, 5000, 2000, final=True), nulls=True
    ),
    "stream-table-inner": _table(lambda: StreamTableJoin(texts), "at", is_table=False),
    "stream-table-left": _table(lambda: StreamTableJoin(texts, "left"), "at", is_table=False),
    "stream-table-versioned": _table(
        lambda: StreamTableJoin(texts, history=3_600_000), "at", is_table=False
    ),
    "table-join-inner": _table(lambda: TableTableJoin(texts), "st"),
    "table-join-left": _table(lambda: TableTableJoin(texts, "left"), "st"),
    "table-join-outer": _table(lambda: TableTableJoin(texts, "outer"), "st"),
}


def machines(name: str, given: list[list[Given]]) -> list[Out]:
    test = MachineTest(CASES[name].machine(), packed=True)
    start, topics = round(_BASE.timestamp() * 1000), CASES[name].topics
    found: list[Out] = []
    for batch in given:
        rows = [
            test.row(
                each.key,
                None if each.value is None else {"value": each.value},
                start + each.at,
                input=topics.index(each.topic),
            )
            for each in batch
        ]
        for out in test.batch(rows):
            key = out.key
            if out.window is not None:
                key = f"{key}@{out.window[0] - start}/{out.window[1] - start}"
            at = out.timestamp if out.source is None or out.timestamp else out.source.timestamp
            assert at is not None
            value = None if out.tombstone or out.value is None else str(out.value["value"])
            found.append((key, value, at - start))
    return found


# Records


def batches(given: Case, chance: random.Random) -> Iterator[list[Given]]:
    """Yields the records of one topic at a time, so that their order is the same on both sides.

    Stream time moves with each record in Kafka, here with each batch. So a batch has one record, or
    none that is late by the records before it in the same batch.
    """
    now = 100_000
    for number in range(_BATCHES):
        topic = given.topics[number % len(given.topics)]
        is_late = given.late and chance.random() < 0.3
        made = []
        for _ in range(1 if is_late else chance.randint(1, 12)):
            if is_late:
                at = max(now - chance.randint(*given.late_by), 0)
            else:
                at = now - chance.randint(0, _ORDER)
                if chance.random() < 0.6:
                    at = now + chance.randint(0, _STEP)
            key: str | None = chance.choice(_KEYS)
            if given.null_keys and chance.random() < 0.1:
                key, at = None, min(at, now)  # Kafka does not look at its time
            value: str | None = chance.choice(given.values)
            if given.nulls and chance.random() < 0.15:
                value, at = None, min(at, now)
            now = max(now, at)
            made.append(Given(topic, key, value, at))
        yield made
    # Time comes to its end in each topic of a stream.
    for topic in given.topics:
        if topic in "ab":
            yield [Given(topic, _END, given.values[0], now + 100_000)]


# What comes out: (key, value, milliseconds after the start)
Out = tuple[str | None, str | None, int]


def kafkas(given: list[tuple[str, list[list[Given]]]], folder: Path) -> list[list[Out]]:
    """Returns what Kafka Streams makes of these records, for each of these topologies."""
    start = round(_BASE.timestamp() * 1000)
    lines = []
    for name, parts in given:
        lines.append(f"{_BEGIN}{name}")
        for each in (each for part in parts for each in part):
            fields = [each.topic, *(r"\N" if v is None else v for v in (each.key, each.value))]
            lines.append("\t".join([*fields, str(start + each.at)]))
    jars = kafka_jars.topology_driver(kafka_jars.kafka_version())
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", folder, _PROGRAM], check=True)
    done = subprocess.run(
        ["java", "-cp", f"{folder}:{jars}/*", "Topologies", folder / "state"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[Out]] = []
    for line in done.stdout.splitlines():
        if line.startswith(_BEGIN):
            found.append([])
            continue
        key, value, at = (None if v == r"\N" else v for v in line.split("\t"))
        assert at is not None
        found[-1].append((_window_key(key), value, int(at) - start))
    return found


def _window_key(key: str | None) -> str | None:
    if key is None or "@" not in key:
        return key
    start = round(_BASE.timestamp() * 1000)
    name, _, span = key.partition("@")
    first, last = (int(each) - start for each in span.split("/"))
    return f"{name}@{first}/{last}"


def in_the_end(found: list[Out], *, is_table: bool) -> Any:
    kept = [each for each in found if (each[0] or "").partition("@")[0] != _END]
    kept = [each for each in kept if _END not in (each[1] or "")]
    if not is_table:
        return Counter(kept)
    latest = {key: (value, at) for key, value, at in kept}
    return {key: each for key, each in latest.items() if each[0] is not None}


@dataclass(frozen=True, slots=True)
class Compared:
    """Records for a topology, and what Kafka Streams makes of them."""

    given: list[list[Given]]
    wanted: list[Out]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Compared]]:
    """All topologies in one process of Java, which takes longer to start than to run them."""
    given = [
        (name, list(batches(each, random.Random(f"{name} {seed}"))))
        for name, each in CASES.items()
        for seed in range(_SEEDS)
    ]
    found: dict[str, list[Compared]] = {}
    wanted = kafkas(given, tmp_path_factory.mktemp("driver"))
    for (name, records), each in zip(given, wanted, strict=True):
        found.setdefault(name, []).append(Compared(records, each))
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_machine_has_the_results_of_kafka_streams(
    compared: dict[str, list[Compared]], name: str
) -> None:
    is_table = CASES[name].is_table
    for seed, each in enumerate(compared[name]):
        expected = in_the_end(each.wanted, is_table=is_table)
        assert in_the_end(machines(name, each.given), is_table=is_table) == expected, seed
