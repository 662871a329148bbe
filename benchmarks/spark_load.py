"""Runs a Spark session that reads a topic in several ways in turn, or writes one. The last line of
its output has the samples as JSON.

    python -m benchmarks.spark_load ACTION BOOTSTRAP TOPIC COUNT ROUNDS JARS FOLDER

ACTION is read, stream, write or latency.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {"headwater": "headwater", "spark-sql-kafka": "kafka"}
_BATCH = 20
_PARTITIONS = 4
_PATIENCE = 60.0


def main() -> None:
    action, bootstrap, topic, count, rounds, jars, folder = sys.argv[1:]
    settings = {"spark.jars": jars, "spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    spark = spark_session("bench", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    bench = Bench(spark, bootstrap, topic, int(count), folder)
    print(json.dumps(bench.run(action, int(rounds))), flush=True)
    spark.stop()


class Bench:
    def __init__(
        self, spark: SparkSession, bootstrap: str, topic: str, count: int, folder: str
    ) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        self._topic = topic
        self._count = count
        self._folder = folder

    def run(self, action: str, rounds: int) -> dict[str, list[float]]:
        actions: dict[str, Callable[..., list[float]]] = {
            "read": self._read,
            "stream": self._stream,
            "write": self._write,
            "latency": self._latency,
        }
        ways = {name: partial(actions[action], kind) for name, kind in _FORMATS.items()}
        if action == "read":
            ways["files"] = partial(self._read, "headwater", {"read.from": "files"})
        found: dict[str, list[float]] = {name: [] for name in ways}
        # The first round is not counted: the JVM has not compiled the code yet.
        for at in range(rounds + 1):
            for name, way in ways.items():
                samples = way()
                if at:
                    found[name] += samples
        return found

    def _read(self, kind: str, more: dict[str, str] | None = None) -> list[float]:
        started = time.monotonic()
        frame = self._spark.read.format(kind).options(**self._options, **(more or {})).load()
        frame.write.format("noop").mode("overwrite").save()
        return [self._count / (time.monotonic() - started)]

    def _stream(self, kind: str) -> list[float]:
        source = self._spark.readStream.format(kind).options(**self._options)
        source = source.option("startingOffsets", "earliest")
        started = time.monotonic()
        query = (
            source.load()
            .writeStream.format("noop")
            .option("checkpointLocation", tempfile.mkdtemp(dir=self._folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        elapsed = time.monotonic() - started
        read = sum(progress.numInputRows for progress in query.recentProgress)
        assert read == self._count, f"{kind}: {read} of {self._count} records came"
        return [self._count / elapsed]

    def _write(self, kind: str) -> list[float]:
        """Writes rows that Spark generates to a new topic each time."""
        where = self._options["kafka.bootstrap.servers"]
        admin = AdminClient({"bootstrap.servers": where})
        name = f"{self._topic}-{kind}-{time.monotonic_ns()}"
        admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(_PATIENCE)
        frame = self._spark.range(self._count).selectExpr(
            "lpad(cast(id as string), 100, '0') as value"
        )
        started = time.monotonic()
        writer = frame.write.format(kind).option("kafka.bootstrap.servers", where)
        writer.option("topic", name).mode("append").save()
        elapsed = time.monotonic() - started
        written = self._spark.read.format("headwater").options(**self._options)
        rows = written.option("subscribe", name).option("columns", "offset").load().count()
        assert rows == self._count, f"{kind}: {rows} of {self._count} records are there"
        admin.delete_topics([name])[name].result(_PATIENCE)
        return [self._count / elapsed]

    def _latency(self, kind: str) -> list[float]:
        """Returns the median time from the acknowledgement of a batch until it is processed, for
        one batch after the other. Nothing arrives in between, as with a trickle of records: on
        Apache Kafka each task of Spark's connector then waits for fetch.max.wait.ms, since its
        request for offsets is queued behind the fetch that it has sent in advance."""
        seen = 0
        changed = threading.Condition()

        def take(frame: DataFrame, _: int) -> None:
            nonlocal seen
            rows = frame.count()
            with changed:
                seen += rows
                changed.notify()

        source = self._spark.readStream.format(kind).options(**self._options)
        query = (
            source.option("startingOffsets", "latest")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", tempfile.mkdtemp(dir=self._folder))
            .start()
        )
        while not query.recentProgress and not query.status["message"].startswith("Waiting"):
            time.sleep(0.05)
        times = []
        for at in range(self._count + 5):
            for number in range(_BATCH):
                self._producer.produce(self._topic, b"x" * 100, partition=number % 2)
            self._producer.flush()
            started = time.monotonic()
            with changed:
                while seen < _BATCH * (at + 1):
                    assert changed.wait(_PATIENCE), f"{kind}: {seen} records came"
            if at >= 5:
                times.append((time.monotonic() - started) * 1000)
            time.sleep(0.02 * (at % 7))  # avoids a fixed phase
        query.stop()
        return [statistics.median(times)]


if __name__ == "__main__":
    main()
