"""Keyed machines in transformWithState: checkpoints, timers, versions of state, failures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException

from headwater.streams.host import DROPPED, FAILURE, FAILURE_TYPE, run_keyed
from headwater.streams.joins import TableTableJoin
from headwater.streams.machine import KeyedMachine
from headwater.streams.processor import (
    Context,
    Processor,
    ProcessorMachine,
    Record,
    State,
    migration,
)
from headwater.streams.types import shape_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INPUT = (
    "_key string, _timestamp timestamp, _topic string, _partition int, _offset bigint, "
    "_raw_key binary, _raw_value binary, value bigint"
)
_OUTPUT = (
    "_key string, _timestamp timestamp, _headers array<struct<key: string, value: binary>>, "
    f"_offset bigint, value string, {FAILURE} {FAILURE_TYPE}, {DROPPED} string"
)
# The workers of Spark cannot import a module of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

pytestmark = pytest.mark.timeout(600)

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Counting(Processor[str, int, str]):
    """Counts, and says so when a key was silent for a minute."""

    count: State[int] = State(default=0)

    def process(self, record: Record[str, int], ctx: Context[str]) -> Iterator[Any]:
        if record.value < 0:
            raise ValueError(f"{record.value} is negative")
        self.count.set((self.count.get() or 0) + 1)
        ctx.timer(ctx.timestamp + timedelta(minutes=1))
        yield Record(str(self.count.get()), headers=[("offset", str(ctx.offset).encode())])

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[str]:
        yield f"silent after {self.count.get()}"


class InTens(Counting):
    version = 2

    @staticmethod
    @migration(1)
    def in_tens(state: dict[str, Any]) -> dict[str, Any]:
        return {"count": state["count"] * 10}


@dataclass
class Keyed:
    """A query with a machine over files, which continues where it was."""

    spark: SparkSession
    folder: Path
    written: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def write(self, *rows: tuple[str, int, int], number: int = 0) -> None:
        """Rows are a key, seconds after T0, and a value; they are read in any order."""
        lines = []
        for key, seconds, value in rows:
            at = (T0 + timedelta(seconds=seconds)).isoformat()
            row = {"_key": key, "_timestamp": at, "value": value, "_offset": self.written}
            lines.append(json.dumps(row | {"_topic": "numbers", "_partition": 0}))
            self.written += 1
        source = self.folder / f"source-{number}"
        source.mkdir(exist_ok=True)
        (source / f"{self.written:06}.json").write_text("\n".join(reversed(lines)))

    def source(self, number: int = 0) -> DataFrame:
        frame = self.spark.readStream.schema(_INPUT).json(str(self.folder / f"source-{number}"))
        return frame.withWatermark("_timestamp", "10 seconds")

    def run(self, machine: KeyedMachine, inputs: int = 1, **options: Any) -> list[dict[str, Any]]:
        from pyspark.sql.types import StructType

        frames = [self.source(number) for number in range(inputs)]
        output = StructType.fromDDL(_OUTPUT)
        assert isinstance(output, StructType)
        result = run_keyed(frames, machine, output=output, name="counting", **options)
        seen: list[dict[str, Any]] = []

        def take(frame: DataFrame, _: int) -> None:
            seen.extend(row.asDict(recursive=True) for row in frame.collect())

        query = (
            result.writeStream.foreachBatch(take)
            .outputMode("update")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seen


def _machine(processor: type[Processor[str, int, str]]) -> ProcessorMachine:
    return ProcessorMachine(processor, "counting", shape_of(str), shape_of(int), shape_of(str))


def _values(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["_key"], row["value"]) for row in rows if row[FAILURE] is None)


@pytest.mark.parametrize("packed", [True, False], ids=["buckets", "keys"])
def test_a_processor_continues_with_its_state_its_timers_and_another_version(
    spark: SparkSession, tmp_path: Path, packed: bool
) -> None:
    keyed = Keyed(spark, tmp_path)
    keyed.write(("a", 0, 1), ("a", 1, -5), ("b", 5, 1), ("a", 2, 1))
    options: dict[str, Any] = {"time": "event", "packed": packed, "on_error": "dead_letter"}
    rows = keyed.run(_machine(Counting), **options)
    assert _values(rows) == [("a", "1"), ("a", "2"), ("b", "1")]
    (failed,) = [row for row in rows if row[FAILURE] is not None]
    assert failed[FAILURE]["reason"] == (
        "operator counting (topic numbers, partition 0, offset 1): ValueError: -5 is negative"
    )
    assert "in process" in failed[FAILURE]["traceback"]
    first = next(row for row in rows if row["value"] == "1" and row["_key"] == "a")
    assert first["_headers"] == [{"key": "offset", "value": bytearray(b"0")}]
    assert first["_offset"] == 0

    # Another version of the state, and the timer of "a", which the first run has left.
    keyed.write(("b", 70, 1), ("c", 90, 1))
    rows = keyed.run(_machine(InTens), **options)
    assert _values(rows) == [("a", "silent after 20"), ("b", "11"), ("c", "1")]

    # The version before cannot read it, and says so in the line that a user sees.
    keyed.write(("a", 100, 1), ("b", 100, 1), ("c", 100, 1))
    with pytest.raises(
        StreamingQueryException,
        match="operator counting: its state was written by version 2, and this code has version 1",
    ):
        keyed.run(_machine(Counting), **options)


def test_inputs_of_a_machine_and_rows_without_effect(spark: SparkSession, tmp_path: Path) -> None:
    def combine(left: Any, right: Any) -> Any:
        return {"value": f"{left['value']}/{right['value']} = {left['value'] / right['value']:g}"}

    keyed = Keyed(spark, tmp_path)
    keyed.write(("a", 0, 1), ("a", 1, 6), ("b", 0, 5), number=0)
    keyed.write(("a", 0, 2), ("b", 0, 0), number=1)
    rows = keyed.run(TableTableJoin(combine, versioned=(True, True)), 2, on_error="dead_letter")
    assert _values(rows) == [("a", "6/2 = 3")]
    assert [row[FAILURE]["reason"] for row in rows if row[FAILURE]] == [
        "operator counting (topic numbers, partition 0, offset 2): ZeroDivisionError: "
        "division by zero"
    ]
    keyed.write(("a", -5, 7), number=0)
    rows = keyed.run(TableTableJoin(combine, versioned=(True, True)), 2, on_error="dead_letter")
    assert [row[DROPPED] for row in rows] == ["out of order"]


def test_a_failure_without_a_handler_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    from headwater.spark.failures import failure_of

    keyed = Keyed(spark, tmp_path)
    keyed.write(("a", 0, -1))
    with pytest.raises(StreamingQueryException) as raised:
        keyed.run(_machine(Counting), time="both")
    assert str(failure_of(raised.value)) == (
        "operator counting (topic numbers, partition 0, offset 0): ValueError: -1 is negative"
    )
