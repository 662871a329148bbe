"""Programs that tests run in their own processes: `python -m tests.spark.programs NAME ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def copy(bootstrap: str, topic: str, folder: str) -> None:
    """Streams a topic into files, which Spark writes exactly once, until it is stopped."""
    spark = spark_session("copy", master="local[2]", settings=QUIET)
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.format("headwater").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    source = source.option("maxOffsetsPerTrigger", "50")
    (
        source.load()
        .selectExpr("cast(value as string) as value")
        .writeStream.format("text")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
        .awaitTermination()
    )


def copy_slowly(bootstrap: str, topic: str, folder: str, master: str) -> None:
    """Copies what is there now into files, so slowly that the workers that send the rows can be
    killed meanwhile. A failed task is retried."""
    spark = spark_session("copy slowly", master=master, settings=QUIET)
    spark.sparkContext.setLogLevel("WARN")
    source = spark.readStream.format("headwater").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    pause = "if(offset % 1000 = 0, reflect('java.lang.Thread', 'sleep', 20L), '')"
    (
        source.load()
        .selectExpr("value", f"{pause} as paused")
        .selectExpr("concat(cast(value as string), if(paused = 'never', 'x', '')) as value")
        .writeStream.format("text")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    spark.stop()


def count(bootstrap: str, topic: str, where: str) -> None:
    """Counts the records of a topic on another cluster or server, in a batch and in a stream."""
    if where.startswith("sc://"):
        spark = spark_session(remote=where)
    else:
        spark = spark_session("count", master=where, settings=QUIET)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    batch = spark.read.format("headwater").options(**options).load().count()
    print(f"batch {batch}", flush=True)
    print(f"stream {_streamed(spark, options)}", flush=True)
    spark.stop()


def _streamed(spark: SparkSession, options: dict[str, str]) -> int:
    source = spark.readStream.format("headwater").options(**options)
    query = (
        source.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


PROGRAMS: dict[str, Callable[..., None]] = {
    "copy": copy,
    "copy-slowly": copy_slowly,
    "count": count,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
