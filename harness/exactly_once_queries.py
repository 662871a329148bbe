"""The queries of `harness.exactly_once`, which stop where they are told to, to be killed there.

    python -m harness.exactly_once_queries BOOTSTRAP FOLDER MASTER

This is the driver; `spark_site` has Spark's other processes know the steps. A step is armed by a
file of its name in FOLDER/steps. The first process to reach it takes the file, reports it, and
waits until FOLDER/steps/go exists.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.client.requests.transactions import TransactionHandle
from headwater.spark import exactly_once_writer, sink_transactions, spark_session, transaction_tasks
from headwater.spark.transactions import OwnedTransactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INPUT = "input"
# Named by how a batch is written, in one transaction or in one for each task, and with which state.
WHOLE_COPY, WHOLE_COUNTS, TASKS_COPY, TASKS_DISTINCT = "wc", "wn", "tc", "td"
OUTPUTS = (WHOLE_COPY, WHOLE_COUNTS, TASKS_COPY, TASKS_DISTINCT)
_STEPS = ("before-init", "after-init", "mid-task", "before-commit", "after-commit")
STEPS = (
    *(f"{kind}.{step}" for kind in ("whole", "tasks") for step in _STEPS),
    "whole.mid-write",
    "tasks.between-commits",
)
KEYS = 5
_FOLDER = "HEADWATER_STEPS"
_PATIENCE = 120.0


def reach(step: str) -> None:
    """Waits here if the step is armed."""
    folder = Path(os.environ[_FOLDER])
    try:
        (folder / step).rename(folder / "reached.new")
    except FileNotFoundError:
        return
    (folder / "reached.new").write_text(str(os.getpid()))
    (folder / "reached.new").rename(folder / "reached")
    deadline = time.monotonic() + _PATIENCE
    while not (folder / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def stopping(batches: Iterable[Any], step: str) -> Iterator[Any]:
    for rows in batches:
        yield rows
        reach(step)


def know_steps_of_driver() -> None:
    begin, commit = OwnedTransactions.begin, OwnedTransactions.commit
    write = OwnedTransactions.write

    def begin_with_steps(self: OwnedTransactions) -> TransactionHandle:
        if self._handle is not None:
            return begin(self)
        reach("whole.before-init")
        handle = begin(self)
        reach("whole.after-init")
        return handle

    def write_with_steps(self: OwnedTransactions, batches: Iterable[Any]) -> int:
        return write(self, stopping(batches, "whole.mid-write"))

    def commit_with_steps(self: OwnedTransactions) -> None:
        reach("whole.before-commit")
        commit(self)
        reach("whole.after-commit")

    OwnedTransactions.begin = begin_with_steps  # type: ignore[method-assign]
    OwnedTransactions.write = write_with_steps  # type: ignore[method-assign]
    OwnedTransactions.commit = commit_with_steps  # type: ignore[method-assign]


def know_steps_of_workers() -> None:
    """Also those of the process that ends the transactions of tasks: it is a worker of Python."""
    begin, add = OwnedTransactions.begin, transaction_tasks._Writer.add
    write, commit = OwnedTransactions.write, sink_transactions._Ends.commit
    names = vars(sink_transactions)
    end = names["end_transaction"]

    def begin_with_steps(self: OwnedTransactions) -> TransactionHandle:
        reach("tasks.before-init")
        handle = begin(self)
        reach("tasks.after-init")
        return handle

    def add_with_steps(self: Any, batch: Any) -> None:
        add(self, batch)
        reach("whole.mid-task")

    def write_with_steps(self: OwnedTransactions, batches: Iterable[Any]) -> int:
        return write(self, stopping(batches, "tasks.mid-task"))

    async def end_with_steps(*given: Any, commit: bool, **named: Any) -> TransactionHandle:
        if commit:
            reach("tasks.before-commit")
        ended: Awaitable[TransactionHandle] = end(*given, commit=commit, **named)
        handle = await ended
        if commit:
            reach("tasks.between-commits")
        return handle

    def commit_with_steps(self: Any, parts: Any) -> None:
        commit(self, parts)
        reach("tasks.after-commit")

    OwnedTransactions.begin = begin_with_steps  # type: ignore[method-assign]
    transaction_tasks._Writer.add = add_with_steps  # type: ignore[method-assign]
    OwnedTransactions.write = write_with_steps  # type: ignore[method-assign]
    names["end_transaction"] = end_with_steps
    sink_transactions._Ends.commit = commit_with_steps  # type: ignore[method-assign]


class Queries:
    """Four queries on one topic. One that fails is started again, as a service would."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: str) -> None:
        self._spark, self._bootstrap, self._folder = spark, bootstrap, folder
        self._starts: dict[str, Callable[[], StreamingQuery]] = {
            WHOLE_COPY: lambda: self._whole(WHOLE_COPY, self._source(), "append"),
            WHOLE_COUNTS: lambda: self._whole(WHOLE_COUNTS, self._counts(), "update"),
            TASKS_COPY: lambda: self._tasks(TASKS_COPY, self._source()),
            TASKS_DISTINCT: lambda: self._tasks(
                TASKS_DISTINCT, self._source().dropDuplicates(["value"])
            ),
        }
        self._running: dict[str, StreamingQuery] = {}

    def _source(self) -> DataFrame:
        reader = self._spark.readStream.format("headwater").option("subscribe", INPUT)
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.option("startingOffsets", "earliest").option("tasks", "2")
        reader = reader.option("isolation", "read_committed")
        reader = reader.option("latestOffset.waitMs", "1000")  # there is enough to do
        frame = reader.option("maxOffsetsPerTrigger", "1000").load()
        return frame.selectExpr("cast(value as string) as value")

    def _counts(self) -> DataFrame:
        keys = self._source().selectExpr(f"cast(value as int) % {KEYS} as key")
        return keys.groupBy("key").count().selectExpr("concat(key, '=', count) as value")

    def _options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._bootstrap,
            "topic": topic,
            "kafka.transaction.timeout.ms": "300000",
        }

    def _whole(self, name: str, frame: DataFrame, mode: str) -> StreamingQuery:
        writer = exactly_once_writer(
            self._options(name), group=name, checkpoint=f"{self._folder}/{name}"
        )
        if name == WHOLE_COPY:  # by tasks; what the other one writes is written by the driver
            writer._small_batches.records_max = 0
        query = frame.writeStream.foreachBatch(writer).outputMode(mode)
        return query.option("checkpointLocation", f"{self._folder}/{name}").start()

    def _tasks(self, name: str, frame: DataFrame) -> StreamingQuery:
        query = frame.writeStream.format("headwater").options(**self._options(name))
        query = query.option("delivery", "exactly_once")
        return query.option("checkpointLocation", f"{self._folder}/{name}").start()

    def keep_running(self) -> None:
        while True:
            for name, start in self._starts.items():
                query = self._running.get(name)
                if query is None or not query.isActive:
                    if query is not None:
                        print(f"{name} starts again: {str(query.exception())[:600]}", flush=True)
                    self._running[name] = start()
            time.sleep(0.2)


def run(bootstrap: str, folder: str, master: str) -> None:
    know_steps_of_driver()
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    spark = spark_session("exactly once", master=master, shuffle_partitions=2, settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    Queries(spark, bootstrap, folder).keep_running()


if __name__ == "__main__":
    os.environ[_FOLDER] = f"{sys.argv[2]}/steps"
    run(*sys.argv[1:])
