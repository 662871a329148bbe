"""Makes the state of an aggregation from the topic of its table, without its inputs.

The topic of a table with a name has what its aggregation keeps for each key, as of the last
transaction of its query, which has the query's position as well. So the rows of the topic go into
the state of the operator as one micro-batch, beside the sources of the query, which read nothing
from where they are; and the query continues from that checkpoint.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.streams.expressions import Expression, written
from headwater.streams.topology import Aggregate, Keyed, Node, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.streams.planner import Plan, QueryPlan
    from headwater.streams.running import TopicEnvironment

RESTORED = ("count", "sum", "min", "max")  # functions whose result is all that Spark keeps
_FILES = "logOffset"  # in the offsets of a source of files
_TIME = "max(_timestamp)"  # which every aggregation has


def why_not(query: QueryPlan) -> str | None:
    """Returns why the state of a query cannot be made from the topic of its table; None if it
    can."""
    head = query.head
    if head is None:
        return "it has no state"
    if head.store is None:
        return f"{head.name} is not a table with a name"
    others = [node.name for node in query.stateful if node is not head]
    if others:
        return f"{', '.join(others)} keeps what is not in the table {head.store}"
    operation = head.operation
    if isinstance(operation, Keyed):
        if not operation.restores:
            return f"{head.name} keeps more than its results"
    elif isinstance(operation, Aggregate):
        for _, column in operation.aggregates:
            if not (isinstance(column, Expression) and column.function in RESTORED):
                return f"{written(column)} keeps more than its result"
        columns = [written(column).replace("'", "") for _, column in operation.aggregates]
        texts = [_TIME, *columns]
        if len(set(texts)) < len(texts):
            return "two of its columns are the same aggregate, which Spark keeps once"
    else:
        return f"{head.name} keeps more than its results"
    if operation.final:
        return "its table has only windows that are closed"
    return None


def has_counts(query: QueryPlan) -> bool:
    """Returns whether the state has counts: one of n is made of n rows."""
    operation = None if query.head is None else query.head.operation
    if not isinstance(operation, Aggregate):
        return False
    return any(
        isinstance(column, Expression) and column.function == "count"
        for _, column in operation.aggregates
    )


def topic_of(query: QueryPlan) -> str:
    """Returns the topic with the table that a query keeps."""
    assert query.head is not None
    assert query.head.store is not None
    return f"{query.app}-{query.head.store}-changelog"


def source_of(query: QueryPlan) -> Node:
    """Returns the node that reads the topic of the table."""
    assert query.head is not None
    topic = topic_of(query)
    operation = Source(topics=(topic,), internal=True)
    return replace(query.head, name=topic, operation=operation, inputs=(), store=None)


def restore(
    spark: SparkSession, plan: Plan, query: QueryPlan, environment: TopicEnvironment
) -> int:
    """Makes the checkpoint of a query, which must not exist, and returns how many keys it has.

    The `start` and `stop` of the environment are where the query was.
    """
    from headwater.streams.operators import Frames, Schemas

    checkpoint = Path(environment.checkpoint(query).removeprefix("file://"))
    folder = checkpoint.with_name(f"{checkpoint.name}.table")
    shutil.rmtree(folder, ignore_errors=True)
    schemas: Schemas = {}
    try:
        latest = latest_records(environment.table(spark, topic_of(query)))
        latest.write.parquet(str(folder))
        rows = spark.readStream.schema(latest.schema).parquet(str(folder))
        for each in plan.queries:

            def read(session: SparkSession, node: Node, query: QueryPlan = each) -> DataFrame:
                source = node.operation
                assert isinstance(source, Source)
                return environment.read(session, source, query)

            frames = Frames(spark, plan, each, read, environment.copies, schemas)
            if each is query:
                _run(frames.restoring(rows), query, checkpoint)
                break
            frames.streaming()  # what it writes to internal topics is noted in the schemas
        _forget_files(checkpoint)
        return spark.read.parquet(str(folder)).count()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def latest_records(table: DataFrame) -> DataFrame:
    """Returns the last record of each key that is not deleted.

    Within a partition that is the one with the highest offset: the times of results fall where
    records come out of order. Offsets of different partitions, in which a key may be if the topic
    has grown, do not compare; there time decides.
    """
    from pyspark.sql import functions as f

    row = f.struct("value", "topic", "partition", "offset", "timestamp", "headers")
    keyed = table.where("key is not null").groupBy("key", "partition")
    in_partition = keyed.agg(f.max_by(row, "offset").alias("row"))
    found = in_partition.groupBy("key").agg(f.max_by("row", "row.timestamp").alias("row"))
    return found.select("key", "row.*").where("value is not null")


def _run(frame: DataFrame, query: QueryPlan, checkpoint: Path) -> None:
    def take(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("noop").mode("overwrite").save()

    started = (
        frame.writeStream.queryName(f"{query.app}-{query.name}")
        .outputMode(query.mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    started.awaitTermination()


def _forget_files(checkpoint: Path) -> None:
    """Takes the source with the table out of the checkpoint: the query does not have it."""
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        version, metadata, *sources = path.read_text().split("\n")
        kept = [each for each in sources if _FILES not in json.loads(each or "{}")]
        path.write_text("\n".join([version, metadata, *kept]))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    shutil.rmtree(checkpoint / "sources", ignore_errors=True)
