"""Runs the queries of a plan on Spark.

What a query reads and where its records go is an `Environment`: topics of a cluster
(`TopicEnvironment`), or whatever a test puts in their place. All records of a micro-batch, in all
topics, with their dead letters, are one frame for one writer, and so one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import AnalysisException

from headwater.spark.exactly_once import exactly_once_writer
from headwater.spark.failures import spark_message
from headwater.streams.errors import TopologyError
from headwater.streams.operators import Frames, Schemas
from headwater.streams.planner import Plan, QueryPlan
from headwater.streams.topology import Node, Source
from headwater.streams.windows import interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "headwater"
Write = Callable[["DataFrame", int], None]


class Environment(Protocol):
    """What queries read, and where their records go."""

    def read(self, spark: SparkSession, source: Source, query: QueryPlan) -> DataFrame:
        """Returns a streaming frame with the columns of a topic: key, value, topic, partition,
        offset, timestamp, headers."""
        ...

    def writer(self, query: QueryPlan) -> Write:
        """Returns a function for foreachBatch; its frame has the columns topic, key, value, headers
        and timestamp."""
        ...

    def checkpoint(self, query: QueryPlan) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnvironment:
    """The topics of a cluster."""

    bootstrap: str
    checkpoints: str  # a folder for each app in it, and in that one for each query
    options: Mapping[str, str] = field(default_factory=dict)  # kafka.*, for sources and sinks
    exactly_once: bool = True  # a micro-batch is one transaction; else results may come twice

    def read(self, spark: SparkSession, source: Source, query: QueryPlan) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            **self.options,
            "includeHeaders": "true",
            "startingOffsets": "earliest",
        }
        if source.pattern is not None:
            options["subscribePattern"] = source.pattern
        else:
            options["subscribe"] = ",".join(source.topics)
        if any(name.lower().startswith("starting") for name in source.options):
            del options["startingOffsets"]
        own = {name.lower() for name in (*self.options, *source.options)}
        # What a transaction that is still open has written to an internal topic is no result yet.
        if "kafka.isolation.level" not in own:
            options["isolation"] = "read_committed"
        if not self.exactly_once:
            options["group"] = group_of(query)
        return spark.readStream.format(FORMAT).options(**options).options(**source.options).load()

    def writer(self, query: QueryPlan) -> Write:
        options = {"kafka.bootstrap.servers": self.bootstrap, **self.options}
        if self.exactly_once:
            return exactly_once_writer(
                options, group=group_of(query), checkpoint=self.checkpoint(query)
            )

        def write(batch: DataFrame, _batch_id: int) -> None:
            batch.write.format(FORMAT).mode("append").options(**options).save()

        return write

    def checkpoint(self, query: QueryPlan) -> str:
        return f"{self.checkpoints.rstrip('/')}/{query.app}/{query.name}"


def group_of(query: QueryPlan) -> str:
    """Returns the group under which tools show the lag of a query."""
    return f"{query.app}-{query.name}"


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query whose frames are made: everything in it was checked by Spark but the start."""

    plan: QueryPlan
    frame: DataFrame
    write: Write
    checkpoint: str
    every: str | None

    def start(self, *, once: bool = False) -> StreamingQuery:
        """TopologyError if Spark refuses the query."""
        writer = self.frame.writeStream.queryName(f"{self.plan.app}-{self.plan.name}")
        writer = writer.outputMode(self.plan.mode).option("checkpointLocation", self.checkpoint)
        if once:
            writer = writer.trigger(availableNow=True)
        elif self.every is not None:
            writer = writer.trigger(processingTime=self.every)
        try:
            return writer.foreachBatch(self.write).start()
        except AnalysisException as error:
            raise _refusal(self.plan, error) from None


def prepare(spark: SparkSession, plan: Plan, environment: Environment) -> list[PreparedQuery]:
    """Makes the frames of all queries. TopologyError names the operator that does not fit."""
    schemas: Schemas = {}
    return [_prepared(spark, plan, query, environment, schemas) for query in plan.queries]


def start(
    spark: SparkSession, plan: Plan, environment: Environment, *, once: bool = False
) -> list[StreamingQuery]:
    """Starts all queries. With `once` each reads what is there now; one that reads what another
    writes starts when that one has ended."""
    started = []
    for query in prepare(spark, plan, environment):
        started.append(query.start(once=once))
        if once:
            started[-1].awaitTermination()
    return started


def _prepared(
    spark: SparkSession,
    plan: Plan,
    query: QueryPlan,
    environment: Environment,
    schemas: Schemas,
) -> PreparedQuery:
    def read(session: SparkSession, node: Node) -> DataFrame:
        source = node.operation
        assert isinstance(source, Source)
        return environment.read(session, source, query)

    frames = Frames(spark, plan, query, read, schemas)
    frame = frames.streaming()
    write = environment.writer(query)
    if query.fans_out:
        write = _fanned_out(frames, write)
    every = None if plan.app.every is None else interval(plan.app.every)
    return PreparedQuery(query, frame, write, environment.checkpoint(query), every)


def _fanned_out(frames: Frames, write: Write) -> Write:
    def written(batch: DataFrame, batch_id: int) -> None:
        try:
            write(frames.records(batch), batch_id)
        finally:
            frames.release()

    return written


def _refusal(query: QueryPlan, error: Exception) -> TopologyError:
    text, _ = spark_message(error)
    operator = query.head.name if query.head is not None else query.name
    return TopologyError(
        operator,
        f"Spark refuses the query {query.name} (output mode {query.mode}): {text}",
        then="add .repartition() before the operator, which makes a query of its own",
        place=query.head.place if query.head is not None else None,
    )
