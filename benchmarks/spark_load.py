"""Runs a Spark session that reads a topic in several ways in turn, or writes one. The last line of
its output has the samples as JSON.

    python -m benchmarks.spark_load ACTION BOOTSTRAP TOPIC COUNT ROUNDS JARS FOLDER

ACTION is read, stream, write, sink or latency.
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

from headwater.spark import exactly_once_writer, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {"headwater": "headwater", "spark-sql-kafka": "kafka"}
# How the sink delivers: as it does by default, in a transaction for each task, or for each batch.
_SINKS = ("at-least-once", "exactly-once", "exactly-once-writer")
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
        ways = (
            {name: partial(self._sink, name) for name in _SINKS}
            if action == "sink"
            else {name: partial(actions[action], kind) for name, kind in _FORMATS.items()}
        )
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

    def _sink(self, delivery: str) -> list[float]:
        """Copies the topic to a new one, as a stream, in batches of a tenth of it."""
        where = self._options["kafka.bootstrap.servers"]
        options = {"kafka.bootstrap.servers": where, "topic": self._new_topic("copy")}
        source = self._spark.readStream.format("headwater").options(**self._options)
        source = source.option("startingOffsets", "earliest")
        source = source.option("maxOffsetsPerTrigger", str(self._count // 10))
        writer = source.load().select("key", "value").writeStream
        if delivery == "at-least-once":
            writer = writer.format("headwater").options(**options)
        elif delivery == "exactly-once":
            writer = writer.format("headwater").options(**options, delivery="exactly_once")
        else:
            writer = writer.foreachBatch(exactly_once_writer(options))
        writer = writer.option("checkpointLocation", tempfile.mkdtemp(dir=self._folder))
        started = time.monotonic()
        writer.trigger(availableNow=True).start().awaitTermination()
        elapsed = time.monotonic() - started
        self._check_and_delete(options["topic"], delivery)
        return [self._count / elapsed]

    def _new_topic(self, kind: str) -> str:
        admin = AdminClient({"bootstrap.servers": self._options["kafka.bootstrap.servers"]})
        name = f"{self._topic}-{kind}-{time.monotonic_ns()}"
        admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(_PATIENCE)
        return name

    def _check_and_delete(self, topic: str, what: str) -> None:
        written = self._spark.read.format("headwater").options(**self._options)
        written = written.option("subscribe", topic).option("isolation", "read_committed")
        rows = written.option("columns", "offset").load().count()
        assert rows == self._count, f"{what}: {rows} of {self._count} records are there"
        admin = AdminClient({"bootstrap.servers": self._options["kafka.bootstrap.servers"]})
        admin.delete_topics([topic])[topic].result(_PATIENCE)

    def _write(self, kind: str) -> list[float]:
        """Writes rows that Spark generates to a new topic each time."""
        where = self._options["kafka.bootstrap.servers"]
        name = self._new_topic(kind)
        frame = self._spark.range(self._count).selectExpr(
            "lpad(cast(id as string), 100, '0') as value"
        )
        started = time.monotonic()
        writer = frame.write.format(kind).option("kafka.bootstrap.servers", where)
        writer.option("topic", name).mode("append").save()
        elapsed = time.monotonic() - started
        self._check_and_delete(name, kind)
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
