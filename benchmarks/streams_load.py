"""Counts records by key with a Python processor in Spark. The last line of its output has the
samples as JSON.

    python -m benchmarks.streams_load ACTION KEYS ROWS ROUNDS FOLDER

ACTION:
count: records/s with ours in buckets of keys, with ours where each key is a group (`keys`), and
    with a StatefulProcessor written by hand; all keys are in each batch, the first is not counted
fill: makes a checkpoint that has state for all keys
restart: seconds from the start of a query to the end of its first batch, on that checkpoint and on
    a new one
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.spark import spark_session
from headwater.streams.host import run_keyed
from headwater.streams.processor import Context, Processor, ProcessorMachine, Record, State
from headwater.streams.types import shape_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_BATCHES = 3


class Counts(Processor[int, int, int]):
    count: State[int] = State(default=0)

    def process(self, record: Record[int, int], ctx: Context[int]) -> Iterator[int]:
        count = self.count.get(0) + 1
        self.count.set(count)
        yield count


def main() -> None:
    action = sys.argv[1]
    keys, rows, rounds = map(int, sys.argv[2:5])
    folder = Path(sys.argv[5])
    settings = {"spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    spark = spark_session("bench", master="local[2]", settings=settings, shuffle_partitions=2)
    spark.sparkContext.setLogLevel("ERROR")
    source, checkpoint = folder / f"source-{keys}", folder / f"checkpoint-{keys}"
    found: dict[str, list[float]] = {}
    match action:
        case "count":
            for batch in range(_BATCHES):
                _write(spark, source, keys, rows, batch)
            for _ in range(rounds):
                for name, way in _WAYS.items():
                    batches = _run(spark, source, way, Path(tempfile.mkdtemp(dir=folder)))
                    assert len(batches) == _BATCHES, f"{len(batches)} batches"
                    found.setdefault(name, []).extend(rows / each for each in batches[1:])
        case "fill":
            _write(spark, source, keys, keys, 0)
            _run(spark, source, _WAYS["packed"], checkpoint)
            _write(spark, source, keys, rows, 1)
        case "restart":
            found["state"] = _start(spark, source, checkpoint)
            # The JVM is warm then, which is fair: what is compared is the state.
            found["none"] = _start(spark, source, Path(tempfile.mkdtemp(dir=folder)))
    print(json.dumps(found), flush=True)
    spark.stop()


def _write(spark: SparkSession, source: Path, keys: int, rows: int, batch: int) -> None:
    frame = spark.range(rows).selectExpr(f"id % {keys} as _key", "id as value")
    frame = frame.selectExpr("*", f"timestamp_millis(1700000000000 + {batch}) as _timestamp")
    frame.coalesce(1).write.mode("append").parquet(str(source))


def _ours(frame: DataFrame, *, packed: bool) -> DataFrame:
    from pyspark.sql.types import LongType, StructField, StructType

    output = StructType([StructField("_key", LongType()), StructField("value", LongType())])
    shape = shape_of(int)
    machine = ProcessorMachine(Counts, "counts", shape, shape, shape)
    return run_keyed([frame], machine, output=output, name="counts", packed=packed)


def _plain(frame: DataFrame) -> DataFrame:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Plain(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "count bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            known = self._count.get()
            count = known[0] if known is not None else 0
            for _ in rows:
                count += 1
                yield Row(_key=key[0], value=count)
            self._count.update((count,))

        def close(self) -> None:
            pass

    return frame.groupBy("_key").transformWithState(
        statefulProcessor=Plain(),
        outputStructType="_key bigint, value bigint",
        outputMode="Update",
        timeMode="None",
    )


Way = Callable[["DataFrame"], "DataFrame"]
_WAYS: dict[str, Way] = {
    "packed": partial(_ours, packed=True),
    "keys": partial(_ours, packed=False),
    "by hand": _plain,
}


def _query(spark: SparkSession, source: Path, way: Way, checkpoint: Path) -> StreamingQuery:
    reader = spark.readStream.schema("_key bigint, value bigint, _timestamp timestamp")
    frame = reader.option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = way(frame).writeStream.format("noop").outputMode("update")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def _run(spark: SparkSession, source: Path, way: Way, checkpoint: Path) -> list[float]:
    """Returns the seconds that each batch took."""
    query = _query(spark, source, way, checkpoint)
    query.awaitTermination()
    return [
        each.durationMs["addBatch"] / 1000 for each in query.recentProgress if each.numInputRows
    ]


def _start(spark: SparkSession, source: Path, checkpoint: Path) -> list[float]:
    started = time.monotonic()
    query = _query(spark, source, _WAYS["packed"], checkpoint)
    while not any(each.numInputRows for each in query.recentProgress):
        time.sleep(0.01)
    elapsed = time.monotonic() - started
    query.stop()
    return [elapsed]


if __name__ == "__main__":
    main()
