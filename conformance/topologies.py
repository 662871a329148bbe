"""Topologies that run here and in Kafka Streams: their records, and what Kafka makes of them.

Both sides get the same generated records in the same order: out of order, late, without keys,
without values. `java/Topologies.java` has a topology of each name of `INPUTS`.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import kafka_jars

START = datetime(2026, 1, 1, tzinfo=UTC)

_PROGRAM = Path(__file__).parent / "java" / "Topologies.java"
_START_MS = round(START.timestamp() * 1000)
_KEYS = ("k0", "k1", "k2", "k3")
_WORDS = ("a", "bb", "ccc", "x", "xy", "a bb", "bb ccc bb")
_NUMBERS = ("1", "2", "30", "-4", "500")
_FOREIGN_KEYS = ("k", "l", "m")  # of the table "t"; values of "s" begin with one of them
_FOREIGN_VALUES = ("k", "kk", "l1", "m")
_ORDER = 2000  # how far a record that is not late may be behind the latest one
_BATCHES = 6
_BEGIN = "begin "  # a topology, in the input and the output of the program
_END = "~"  # the key of the records that bring time to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Which records a topology gets, and what of its results is compared.

    is_table: only the last result of each key counts, not every one
    late: whether some records come after their windows were closed, and by how much
    step: by which time grows at most, from a record to the next
    alone: each record is a batch, later than the one before
    timed: whether the times of results are compared
    """

    topics: str = "a"
    values: Sequence[str] = _WORDS
    nulls: bool = False
    null_keys: bool = False
    is_table: bool = False
    late: bool = False
    late_by: tuple[int, int] = (0, 20_000)
    step: int = 3000
    alone: bool = False
    timed: bool = True


def _table(topics: str = "a", **more: Any) -> Inputs:
    return Inputs(**{"topics": topics, "is_table": True, "nulls": True, "null_keys": True, **more})


def _windows(**more: Any) -> Inputs:
    # A record without a value is in no window, as Kafka's documentation has it. Its code counts it
    # in windows of all kinds but sliding ones.
    return _table(**{"nulls": False, "late": True, **more})


# In Kafka a late record that joins an open session brings back closed ones beside it, as its store
# keeps them for a day. Here they are gone. So these are too late for any.
_SESSIONS = _windows(late_by=(20_000, 40_000))
_STREAMS = Inputs(topics="ab", step=500)
_STREAM_AND_TABLE = Inputs(topics="at", nulls=True, null_keys=True)
_STREAM_AND_GLOBAL = Inputs(topics="at", values=_KEYS, nulls=True, null_keys=True)
_FOREIGN = Inputs(topics="st", values=_FOREIGN_VALUES, nulls=True, is_table=True)

INPUTS = {
    "map-filter": Inputs(nulls=True),
    "merge": Inputs(topics="ab", nulls=True, null_keys=True),
    "branch": Inputs(),
    "flat-map-words-count": Inputs(is_table=True),
    "count": _table(),
    "reduce": _table(),
    "sum": _table(values=_NUMBERS),
    "cogroup": _table("ab"),
    "repartition-count": Inputs(is_table=True),
    "count-of-counts": Inputs(is_table=True, alone=True),
    "tumbling-count": _windows(),
    "tumbling-count-final": _windows(),
    "hopping-count": _windows(),
    "hopping-count-final": _windows(),
    "session-count": _SESSIONS,
    "session-count-final": _SESSIONS,
    "sliding-count": _windows(nulls=True),
    "sliding-count-final": _windows(nulls=True),
    "tumbling-reduce": _windows(),
    "cogroup-tumbling": _windows(topics="ab", late=False),
    "suppress-until-time-limit": Inputs(is_table=True),
    "stream-join-inner": _STREAMS,
    "stream-join-left": _STREAMS,
    "stream-join-right": _STREAMS,
    "stream-join-outer": _STREAMS,
    "stream-join-after": _STREAMS,
    "stream-join-window-final": Inputs(topics="ab", step=500, is_table=True),
    "stream-table-inner": _STREAM_AND_TABLE,
    "stream-table-left": _STREAM_AND_TABLE,
    "stream-table-versioned": _STREAM_AND_TABLE,
    "stream-global-inner": _STREAM_AND_GLOBAL,
    "stream-global-left": _STREAM_AND_GLOBAL,
    "table-join-inner": _table("st"),
    "table-join-left": _table("st"),
    "table-join-outer": _table("st"),
    "foreign-key-inner": _FOREIGN,
    "foreign-key-left": _FOREIGN,
    "table-filter": _table("t"),
    "table-map-values": _table("t"),
    "to-table": _table(),
    # The changes of a key in one batch are one change here, at the time of the last of them.
    "table-group-count": _table("t", timed=False),
    "table-group-sum": _table("t", values=_NUMBERS, timed=False),
    "table-group-reduce": _table("t", values=_NUMBERS, timed=False),
    # A timer of Kafka fires at the time of the record that lets it, not at its own.
    "processor": Inputs(alone=True, timed=False),
}


@dataclass(frozen=True, slots=True)
class Given:
    """One record, as both sides get it; its time is in milliseconds after the start."""

    topic: str
    key: str | None
    value: str | None
    at: int


# What comes out: (key, value, milliseconds after the start)
Out = tuple[str | None, str | None, int]


@dataclass(frozen=True, slots=True)
class Driven:
    """Batches of records for a topology, and what Kafka Streams makes of them."""

    given: list[list[Given]]
    wanted: list[Out]


def drive(names: Iterable[str], folder: Path, *, seeds: int) -> dict[str, list[Driven]]:
    """Runs the topologies of Kafka Streams of these names, on different records for each seed.

    All are in one process of Java, which takes longer to start than to run them.
    """
    inputs = [
        (name, list(_batches(INPUTS[name], random.Random(f"{name} {seed}"))))
        for name in names
        for seed in range(seeds)
    ]
    found: dict[str, list[Driven]] = {}
    for (name, given), wanted in zip(inputs, _kafkas(inputs, folder), strict=True):
        found.setdefault(name, []).append(Driven(given, wanted))
    return found


def in_the_end(name: str, found: list[Out]) -> Any:
    """Returns what of the results must be the same on both sides."""
    inputs = INPUTS[name]
    kept = [
        (key, value, at if inputs.timed else 0)
        for key, value, at in found
        if (key or "").partition("@")[0] != _END and _END not in (value or "")
    ]
    if not inputs.is_table:
        return Counter(kept)
    latest = {key: (value, at) for key, value, at in kept}
    return {key: each for key, each in latest.items() if each[0] is not None}


# The functions of topologies


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


# Records


def _batches(inputs: Inputs, chance: random.Random) -> Iterator[list[Given]]:
    """Yields the records of one topic at a time, so that their order is the same on both sides.

    Stream time moves with each record in Kafka, here with each batch. So a batch has one record, or
    none that is late by the records before it in the same batch.
    """
    now = 100_000
    for number in range(_BATCHES * 2 if inputs.alone else _BATCHES):
        topic = inputs.topics[number % len(inputs.topics)]
        is_late = inputs.late and chance.random() < 0.3
        made = []
        for _ in range(1 if inputs.alone or is_late else chance.randint(1, 12)):
            if is_late:
                at = max(now - chance.randint(*inputs.late_by), 0)
            elif inputs.alone or chance.random() < 0.6:
                at = now + chance.randint(0, inputs.step)
            else:
                at = now - chance.randint(0, _ORDER)
            is_foreign = topic == "t" and inputs.values == _FOREIGN_VALUES
            key: str | None = chance.choice(_FOREIGN_KEYS if is_foreign else _KEYS)
            if inputs.null_keys and chance.random() < 0.1:
                key, at = None, min(at, now)  # Kafka does not look at its time
            value: str | None = chance.choice(inputs.values)
            if inputs.nulls and chance.random() < 0.15:
                value, at = None, min(at, now)
            now = max(now, at)
            made.append(Given(topic, key, value, at))
        yield made
    # Time comes to its end in each topic of a stream.
    for topic in inputs.topics:
        if topic in "ab":
            yield [Given(topic, _END, inputs.values[0], now + 100_000)]


# Kafka Streams


def _kafkas(inputs: list[tuple[str, list[list[Given]]]], folder: Path) -> list[list[Out]]:
    """Returns what Kafka Streams makes of these records, for each of these topologies."""
    lines = []
    for name, batches in inputs:
        lines.append(f"{_BEGIN}{name}")
        for each in (each for batch in batches for each in batch):
            fields = [each.topic, *(r"\N" if v is None else v for v in (each.key, each.value))]
            lines.append("\t".join([*fields, str(_START_MS + each.at)]))
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
        found[-1].append((_window_key(key), value, int(at) - _START_MS))
    return found


def _window_key(key: str | None) -> str | None:
    if key is None or "@" not in key:
        return key
    name, _, span = key.partition("@")
    first, last = (int(each) - _START_MS for each in span.split("/"))
    return f"{name}@{first}/{last}"
