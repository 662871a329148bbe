"""Runs the queries of a plan on Spark.

What a query reads and where its records go is an `Environment`: topics of a cluster
(`TopicEnvironment`), or whatever a test puts in their place. All records of a micro-batch, in all
topics, with their dead letters, are one frame for one writer, and so one transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, StreamingQueryException

from headwater.spark.exactly_once import exactly_once_writer
from headwater.spark.failures import Cause, failure_of, spark_message
from headwater.streams.errors import TopologyError
from headwater.streams.global_tables import Copies, TopicCopies
from headwater.streams.operators import Frames, Schemas
from headwater.streams.planner import Plan, QueryPlan
from headwater.streams.topology import Node, Source
from headwater.streams.windows import interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "headwater"
SPARKS_FORMAT = "kafka"  # of the connector that is the only one for real-time mode
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_REAL_TIME_BATCH_MIN = timedelta(seconds=5)
_ATTEMPTS = 5
Write = Callable[["DataFrame", int], None]


class Environment(Protocol):
    """The inputs and outputs of queries."""

    def read(self, spark: SparkSession, source: Source, query: QueryPlan) -> DataFrame:
        """Returns a streaming frame with the columns of a topic: key, value, topic, partition,
        offset, timestamp, headers."""
        ...

    def writer(self, query: QueryPlan) -> Write:
        """Returns a function for foreachBatch; its frame has the columns topic, key, value, headers
        and timestamp."""
        ...

    def copies(self, source: Source) -> Copies:
        """Returns where workers get a copy of a whole topic from, for joins with it."""
        ...

    def sink_options(self, query: QueryPlan) -> Mapping[str, str]:
        """Returns options of Spark's own sink, for a query that runs in real time."""
        ...

    def checkpoint(self, query: QueryPlan) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnvironment:
    """The topics of a cluster."""

    bootstrap: str
    checkpoints: str  # a folder for each app in it, and in that one for each query
    # kafka.*, for sources and sinks.
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    exactly_once: bool = True  # a micro-batch is one transaction; else results may come twice
    # For making state anew: where its sources begin and end, and the only topics to which results
    # go.
    start: Mapping[str, Mapping[str, int]] | None = None
    stop: Mapping[str, Mapping[str, int]] | None = None
    written: frozenset[str] | None = None

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
        if any(map(_is_start, source.options)):
            del options["startingOffsets"]
        given = dict(source.options)
        if self.stop is not None:
            options["stopOffsets"] = json.dumps(self.stop)
        if self.start is not None:
            given = {name: each for name, each in given.items() if not _is_start(name)}
            mine = {topic: at for topic, at in self.start.items() if _reads(source, topic)}
            options |= {"startingOffsets": json.dumps(mine), "failOnDataLoss": "false"}
        own = {name.lower() for name in (*self.options, *given)}
        # What a transaction that is still open has written is no result yet.
        if "kafka.isolation.level" not in own:
            options["kafka.isolation.level"] = "read_committed"
        if not self.exactly_once and not query.real_time:
            options["group"] = group_of(query)
        reader = spark.readStream.format(SPARKS_FORMAT if query.real_time else FORMAT)
        return reader.options(**options).options(**given).load()

    def table(self, spark: SparkSession, topic: str) -> DataFrame:
        """Returns the committed records of a topic."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            **self.options,
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
        }
        return spark.read.format(FORMAT).options(**options).load()

    def writer(self, query: QueryPlan) -> Write:
        write = self._writer(query)
        if self.written is None:
            return write
        written = list(self.written)

        def write_some(batch: DataFrame, batch_id: int) -> None:
            write(batch.where(batch["topic"].isin(written)), batch_id)

        return write_some

    def _writer(self, query: QueryPlan) -> Write:
        options = {"kafka.bootstrap.servers": self.bootstrap, **self.options}
        if self.exactly_once:
            return exactly_once_writer(
                options, group=group_of(query), checkpoint=self.checkpoint(query)
            )

        def write(batch: DataFrame, _batch_id: int) -> None:
            batch.write.format(FORMAT).mode("append").options(**options).save()

        return write

    def copies(self, source: Source) -> Copies:
        settings = {
            name.removeprefix("kafka."): value
            for name, value in self.options.items()
            if name.startswith("kafka.")
        }
        return TopicCopies(self.bootstrap, tuple(settings.items()), source.topics[0])

    def sink_options(self, query: QueryPlan) -> Mapping[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            **self.options,
            "includeHeaders": "true",
        }

    def checkpoint(self, query: QueryPlan) -> str:
        return f"{self.checkpoints.rstrip('/')}/{query.app}/{query.name}"


def _is_start(option: str) -> bool:
    return option.lower().startswith("starting")


def _reads(source: Source, topic: str) -> bool:
    if source.pattern is not None:
        return re.fullmatch(source.pattern, topic) is not None
    return topic in source.topics


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
    every: timedelta | None
    sink: Mapping[str, str]

    def start(self, *, once: bool = False) -> StreamingQuery:
        """TopologyError if Spark refuses the query."""
        writer = self.frame.writeStream.queryName(f"{self.plan.app}-{self.plan.name}")
        writer = writer.outputMode(self.plan.mode).option("checkpointLocation", self.checkpoint)
        if self.plan.real_time:
            # Rows are written as they come; a batch is the time between two checkpoints.
            length = max(self.every or _REAL_TIME_BATCH_MIN, _REAL_TIME_BATCH_MIN)
            untyped: Any = writer  # PySpark's own types lack this trigger
            writer = untyped.trigger(realTime=interval(length))
            writer = writer.format(SPARKS_FORMAT).options(**self.sink)
        elif once:
            writer = writer.trigger(availableNow=True).foreachBatch(self.write)
        elif self.every is not None:
            every = interval(self.every)
            writer = writer.trigger(processingTime=every).foreachBatch(self.write)
        else:
            writer = writer.foreachBatch(self.write)
        try:
            return writer.start()
        except AnalysisException as error:
            raise _refusal(self.plan, error) from None


def prepare(spark: SparkSession, plan: Plan, environment: Environment) -> list[PreparedQuery]:
    """Makes the frames of all queries. TopologyError names the operator that does not fit."""
    if plan.app.latency == "real-time":
        _check_connector(spark, plan)
    schemas: Schemas = {}
    return [_prepared(spark, plan, query, environment, schemas) for query in plan.queries]


def start(spark: SparkSession, plan: Plan, environment: Environment) -> list[StreamingQuery]:
    """Starts all queries."""
    return [query.start() for query in prepare(spark, plan, environment)]


def run_once(spark: SparkSession, plan: Plan, environment: Environment) -> None:
    """Has all queries read what is there now, one after the other. One that fails for a reason that
    may pass is started again, a few times."""
    for query in prepare(spark, plan, environment):
        for left in reversed(range(_ATTEMPTS)):
            started = query.start(once=True)
            try:
                started.awaitTermination()
            except StreamingQueryException as error:
                if not left or failure_of(error).cause is not Cause.TRANSIENT:
                    raise
            else:
                break


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

    frames = Frames(spark, plan, query, read, environment.copies, schemas)
    frame = frames.streaming()
    write = environment.writer(query)
    if query.fans_out:
        write = _fanned_out(frames, write)
    return PreparedQuery(
        query,
        frame,
        write,
        environment.checkpoint(query),
        plan.app.every,
        environment.sink_options(query) if query.real_time else {},
    )


def _check_connector(spark: SparkSession, plan: Plan) -> None:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    except Py4JError:
        raise TopologyError(
            f"app {plan.app.name}",
            'latency="real-time" needs Spark\'s own Kafka connector, which is not installed',
            then=f"run it with --packages {CONNECTOR}:{spark.version}",
        ) from None


def check_cores(spark: SparkSession, plan: Plan, partitions: Mapping[str, int]) -> None:
    """TopologyError if Spark has fewer cores than a real-time app has tasks. Each of its tasks
    takes a core for as long as the app runs; with too few, all would wait without a word.

    `partitions` are those of the topics, by name. A cluster's cores are not known: its executors
    may come later."""
    if plan.app.latency != "real-time" or not str(spark.sparkContext.master).startswith("local"):
        return
    cores = spark.sparkContext.defaultParallelism
    shuffled = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    wanted = sum(
        sum(partitions.get(topic, 0) for topic in query.topics_read)
        + shuffled * len(query.stateful)
        for query in plan.queries
    )
    if wanted > cores:
        raise TopologyError(
            f"app {plan.app.name}",
            f'latency="real-time" needs a core for each of {wanted} tasks, and Spark has {cores}',
            then=f"run it with --master 'local[{wanted}]' or on a cluster, or leave out latency=",
        )


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
