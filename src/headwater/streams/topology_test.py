"""Tests of whole topologies on a local Spark session, without a cluster.

    with TopologyTest(app) as test:
        test.pipe("orders", Order("tea", 2.5), key="alice", timestamp=at)
        assert test.read("totals") == [Record(2.5, key="tea", timestamp=at)]
        assert test.table("totals") == {"tea": 2.5}
        test.advance_to(at + timedelta(hours=1))     # windows close, timers fire
        test.advance_clock("5 minutes")              # timers in processing time fire

The plan and the operators are those that run on a cluster; only the topics are files. Each call of
`pipe` is a micro-batch, and returns when all queries have processed what it has led to.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.spark.session import spark_session
from headwater.streams.errors import TopologyError
from headwater.streams.global_tables import Copies, Offsets
from headwater.streams.processor import UNSET, Record
from headwater.streams.running import PreparedQuery, Write, prepare
from headwater.streams.serde import Serde, serde_of
from headwater.streams.state_reader import StateRow, state_rows
from headwater.streams.topology import Aggregate, GlobalJoin, Keyed, Node, Sink, Source
from headwater.streams.types import shape_of
from headwater.streams.windows import Duration, duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.streams.app import App
    from headwater.streams.planner import Plan, QueryPlan

_START = datetime(2026, 1, 1, tzinfo=UTC)
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(_HEADER)),
    ]
)
_SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
# A test has few rows: one task for a stage, and nothing that pays off later only, such as code that
# Spark makes for an expression and the JVM's second compiler.
_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.ui.enabled": "false",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # Where in Python a column was made: several calls of the JVM for each.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_STATE = "spark.sql.streaming.stateStore.providerClass"
_STATE_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_ROUNDS_MAX = 50  # in which queries pass records on to each other


class TopologyTest:
    """Runs an app's topology; use it as a context manager, or call `close`.

    spark: a session to use; by default one that all tests of the process share
    """

    def __init__(self, app: App, *, spark: SparkSession | None = None) -> None:
        self.plan: Plan = app.plan()
        self.now = _START  # the time of records that are piped without one
        self._spark = spark or shared_session()
        _let_workers_import(self._spark)
        self._topics = _Topics(Path(_folder()))
        self._prepared: list[PreparedQuery] = []
        self._queries: list[StreamingQuery] = []
        self._read_up_to: dict[str, int] = {}
        self._clock: _Clock | None = None
        if any(map(_follows_clock, self.plan.queries)):
            self._clock = _Clock(self._spark)
        try:
            for query in prepare(self._spark, self.plan, self._topics):
                # A micro-batch is what a test pipes in, and not what comes in some time.
                self._prepared.append(replace(query, every=None))
            for query in self._prepared:
                self._queries.append(self._started(query))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def close(self) -> None:
        for query in self._queries:
            with suppress(Exception):  # it has failed already, and the test knows
                query.stop()
        self._queries.clear()
        self._topics.remove()

    # In

    def pipe(
        self,
        topic: str,
        *values: Any,
        key: Any = UNSET,
        timestamp: datetime | None = None,
        headers: Mapping[str, bytes] | None = None,
        partition: int = 0,
    ) -> None:
        """Writes values to a topic, as one micro-batch, and waits until they are processed.

        A value is one of the topic's type, None for a tombstone, bytes as they are, or a `Record`
        with a key, a timestamp and headers of its own. Records without a timestamp get `now`.
        """
        rows = []
        for value in values:
            record = value if isinstance(value, Record) else Record(value)
            given = record.key if record.key is not UNSET else key
            at = record.timestamp or timestamp or self.now
            if record.headers is not None:
                pairs = list(record.headers)
            else:
                pairs = list((headers or {}).items())
            rows.append(
                {
                    "key": None if given is UNSET else self._encoded(topic, given, is_key=True),
                    "value": self._encoded(topic, record.value, is_key=False),
                    "topic": topic,
                    "partition": partition if record.partition is None else record.partition,
                    "timestamp": at if at.tzinfo is not None else at.replace(tzinfo=UTC),
                    "headers": [{"key": name, "value": data} for name, data in pairs],
                }
            )
        self._topics.write(rows)
        self.run()
        self._tick()

    def run(self) -> None:
        """Waits until the queries have processed everything. Raises what one of them failed of."""
        for _ in range(_ROUNDS_MAX):
            before = self._topics.count
            for query in self._queries:
                query.processAllAvailable()
            if self._topics.count == before:
                return
        raise TopologyError(
            self.plan.app.name,
            f"its queries still write after {_ROUNDS_MAX} rounds",
            then="look for a topic that is both read and written",
        )

    def advance_to(self, at: datetime) -> None:
        """Lets time pass without records: watermarks that are lower become `at`, so that windows
        close and timers in event time fire; records that are piped later have this time."""
        self.now = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        for number, prepared in enumerate(self._prepared):
            if not prepared.plan.watermarked:
                continue
            query = self._queries[number]
            query.processAllAvailable()
            query.stop()
            _advance(Path(prepared.checkpoint), round(self.now.timestamp() * 1000))
            self._queries[number] = self._started(prepared)
        self.run()
        self._tick()

    def advance_clock(self, by: Duration) -> None:
        """Moves the clock of the host, so that timers in processing time fire. In a test it stands
        still otherwise; or moves by milliseconds, if a processor has timers of both clocks."""
        moved = duration(by, "advance_clock")
        if self._clock is not None:
            self._clock.advance(moved)
            self._tick()

    @property
    def clock(self) -> datetime:
        """The time of the host, as processors see it."""
        return _START if self._clock is None else self._clock.now

    def _started(self, query: PreparedQuery) -> StreamingQuery:
        if self._clock is not None and _follows_clock(query.plan):
            return self._clock.start(query)
        if _may_keep_state_in_memory(query.plan):
            with _setting(self._spark, _STATE, _STATE_IN_MEMORY):
                return query.start()
        return query.start()

    def _tick(self) -> None:
        """Runs micro-batches without records of the queries that follow the clock, as long as they
        write something."""
        if self._clock is None:
            return
        followers = [each for each in self.plan.queries if _follows_clock(each)]
        for _ in range(_ROUNDS_MAX):
            before = self._topics.count
            if any(each.time == "both" for query in followers for each in _keyed(query)):
                # By Spark's clock such a query looks whether stream time has passed its timers.
                self._clock.advance(timedelta(milliseconds=1))
            for query in followers:
                self._topics.write_nothing(query)
            self.run()
            if self._topics.count == before:
                return

    # Out

    def read(self, topic: str, *, key: Any = None, value: Any = None) -> list[Record[Any, Any]]:
        """Returns the records of a topic since the last call, in their order. `key` and `value` are
        types or serdes; by default those that the app writes the topic with."""
        rows = self._topics.rows.get(topic, [])
        first = self._read_up_to.get(topic, 0)
        self._read_up_to[topic] = len(rows)
        return [self._record(topic, row, key, value) for row in rows[first:]]

    def values(self, topic: str, *, value: Any = None) -> list[Any]:
        """Returns the values of `read`."""
        return [record.value for record in self.read(topic, value=value)]

    def table(self, topic: str, *, key: Any = None, value: Any = None) -> dict[Any, Any]:
        """Returns the latest value of each key of a topic, or of the topic of a named table."""
        name = topic if topic in self._topics.rows else f"{self.plan.app.name}-{topic}-changelog"
        latest: dict[Any, Any] = {}
        for row in self._topics.rows.get(name, []):
            record = self._record(name, row, key, value)
            latest.pop(record.key, None)
            if record.value is not None:
                latest[record.key] = record.value
        return latest

    def dead_letters(self) -> list[Record[bytes, bytes]]:
        """Returns the dead letters since the last call; headers have the reasons."""
        return self.read(self.plan.dead_letters, key=bytes, value=bytes)

    def state(self, operator: str) -> list[StateRow]:
        """Returns what is kept in the query of a stateful operator, as of its last micro-batch."""
        known = [node.name for query in self.plan.queries for node in query.stateful]
        for query in self.plan.queries:
            if any(node.name == operator for node in query.stateful):
                return state_rows(self._spark, self._topics.checkpoint(query))
        raise TopologyError(
            operator, "no operator of this name has state", then=f"there is {', '.join(known)}"
        )

    def topics(self) -> dict[str, int]:
        """Returns the topics with records, and how many they have."""
        return {name: len(rows) for name, rows in self._topics.rows.items()}

    # Types of topics

    def _encoded(self, topic: str, value: Any, *, is_key: bool) -> bytes | None:
        if value is None or isinstance(value, (bytes, bytearray)):
            return None if value is None else bytes(value)
        node = self._source_of(topic)
        if node is None:
            raise TopologyError(
                topic,
                "the app does not read this topic",
                then=f"it reads {', '.join(self._read())}",
            )
        encoded: bytes = _serde(node, is_key=is_key).encode(value)
        return encoded

    def _record(self, topic: str, row: dict[str, Any], key: Any, value: Any) -> Record[Any, Any]:
        node = self._sink_of(topic)
        return Record(
            _decoded(row["value"], value, node, is_key=False),
            key=_decoded(row["key"], key, node, is_key=True),
            timestamp=row["timestamp"],
            headers=tuple((each["key"], each["value"]) for each in row["headers"] or ()) or None,
        )

    def _source_of(self, topic: str) -> Node | None:
        for query in self.plan.queries:
            for node in query.sources:
                operation = node.operation
                assert isinstance(operation, Source)
                if topic in operation.topics:
                    return node
                if operation.pattern is not None and re.fullmatch(operation.pattern, topic):
                    return node
        for node in self.plan.app.nodes:
            operation = node.operation
            if isinstance(operation, GlobalJoin) and operation.topic == topic:
                return operation.table
        return None

    def _sink_of(self, topic: str) -> Node | None:
        for query in self.plan.queries:
            for node in query.ends:
                to = node.operation.to if isinstance(node.operation, Sink) else None
                if isinstance(to, str) and to == topic:  # columns and functions name any topic
                    return node
        return self._source_of(topic)

    def _read(self) -> list[str]:
        return [topic for query in self.plan.queries for topic in query.topics_read]


class _Topics:
    """Topics in memory, and as files for those queries that read them."""

    def __init__(self, folder: Path) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.count = 0
        self._folder = folder
        self._files = 0
        self._done: dict[str, int] = {}  # the last micro-batch that each query has written

    def write(self, rows: Iterable[dict[str, Any]]) -> None:
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            known = self.rows.setdefault(row["topic"], [])
            row["offset"] = sum(1 for each in known if each["partition"] == row["partition"])
            known.append(row)
            by_topic.setdefault(row["topic"], []).append(row)
            self.count += 1
        for topic, added in by_topic.items():
            self._write_file(topic, added)

    def write_nothing(self, query: QueryPlan) -> None:
        """Has a query run a micro-batch without records."""
        for node in query.sources:
            operation = node.operation
            assert isinstance(operation, Source)
            for topic in operation.topics or self.rows:
                self._write_file(topic, [])
                return

    def _write_file(self, topic: str, rows: list[dict[str, Any]]) -> None:
        folder = self.folder_of(topic)
        self._files += 1
        # Spark passes over names that begin with a dot: a file is there whole, or not at all.
        hidden = folder / f".{self._files:08}"
        pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), hidden)
        hidden.rename(folder / f"{self._files:08}.parquet")

    def folder_of(self, topic: str) -> Path:
        folder = self._folder / "topics" / f"topic={topic}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # What the app's queries see of it (running.Environment)

    def read(self, spark: SparkSession, source: Source, query: QueryPlan) -> DataFrame:
        from pyspark.sql import functions as f

        # Not the column that Spark would make of the name of the folder.
        reader = spark.readStream.schema(_SPARK_SCHEMA)
        if source.pattern is not None:
            root = self._folder / "topics"
            root.mkdir(parents=True, exist_ok=True)
            frame = reader.parquet(f"{root}/*")
            return frame.where(f.col("topic").rlike(f"^({source.pattern})$"))
        frames = [reader.parquet(str(self.folder_of(topic))) for topic in source.topics]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def writer(self, query: QueryPlan) -> Write:
        def write(batch: DataFrame, batch_id: int) -> None:
            rows = batch.toArrow().to_pylist()
            if self._done.get(query.name, -1) < batch_id:  # as a transaction, once
                self._done[query.name] = batch_id
                self.write({"partition": 0, **_with_all(row)} for row in rows)

        return write

    def copies(self, source: Source) -> Copies:
        latest: dict[bytes, bytes] = {}
        for row in self.rows.get(source.topics[0], []):
            if row["value"] is None:
                latest.pop(row["key"], None)
            else:
                latest[row["key"]] = row["value"]
        return _Copies(latest)

    def sink_options(self, query: QueryPlan) -> Mapping[str, str]:
        return {}

    def checkpoint(self, query: QueryPlan) -> str:
        return str(self._folder / "checkpoints" / query.name)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _follows_clock(query: QueryPlan) -> bool:
    return any(each.time in ("processing", "both") for each in _keyed(query))


def _keyed(query: QueryPlan) -> list[Keyed]:
    found = (node.operation for node in query.stateful)
    return [each for each in found if isinstance(each, Keyed)]


class _Clock:
    """The clock of the host for queries with timers in processing time: one of Spark's that stands
    still until it is moved.

    Such a query runs one micro-batch after the other without records, so that it would never be
    done. Here it runs one when the clock moves.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._clock = jvm.org.apache.spark.util.ManualClock(round(_START.timestamp() * 1000))

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.getTimeMillis() / 1000, UTC)

    def advance(self, by: timedelta) -> None:
        self._clock.advance(round(by.total_seconds() * 1000))

    def start(self, query: PreparedQuery) -> StreamingQuery:
        with _setting(self._spark, _EMPTY_BATCHES, "false"):
            started = query.start()
        # Spark has no option for the clock. It looks at it when there are records.
        java_query: Any = started._jsq.streamingQuery()
        kind = java_query.getClass()
        while not kind.getName().endswith(".StreamExecution"):
            kind = kind.getSuperclass()
        (field,) = (
            each for each in kind.getDeclaredFields() if each.getName().endswith("triggerClock")
        )
        field.setAccessible(True)
        field.set(java_query, self._clock)
        return started


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Changes a setting of the session while a query is started, which keeps it."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _may_keep_state_in_memory(query: QueryPlan) -> bool:
    """Whether its results, and their order, do not depend on where Spark keeps state: RocksDB takes
    half a second for what is in memory at once. Machines need it, and closed windows come in its
    order."""
    return query.mode == "update" and all(
        isinstance(node.operation, Aggregate) for node in query.stateful
    )


def _advance(checkpoint: Path, watermark: int) -> None:
    """Makes the next micro-batch of a stopped query one without records, at a later watermark: as
    Spark itself would have planned it, had it been killed before it ran."""
    offsets = checkpoint / "offsets"
    last = max((int(each.name) for each in offsets.glob("[0-9]*")), default=None)
    if last is None:
        return  # it has no state yet
    version, metadata, *sources = (offsets / str(last)).read_text().split("\n")
    facts = json.loads(metadata)
    if facts["batchWatermarkMs"] >= watermark:
        return
    facts["batchWatermarkMs"] = watermark
    text = "\n".join([version, json.dumps(facts), *sources])
    (offsets / str(last + 1)).write_text(text)


@dataclass(frozen=True, slots=True)
class _Copies:
    """A global table, as it is when a micro-batch begins."""

    values: Mapping[bytes, bytes]

    def ends(self) -> Offsets | None:
        return None

    def open(self, ends: Offsets | None) -> Mapping[bytes, bytes]:
        return self.values


def _with_all(row: dict[str, Any]) -> dict[str, Any]:
    at = row.get("timestamp")
    found: datetime = _START if at is None else at
    return {
        "key": row.get("key"),
        "value": row.get("value"),
        "topic": row["topic"],
        "partition": row.get("partition") or 0,
        "timestamp": found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC),
        "headers": row.get("headers") or [],
    }


def _serde(node: Node, *, is_key: bool) -> Serde[Any]:
    operation = node.operation
    given = None
    if isinstance(operation, Source | Sink):
        given = operation.key_serde if is_key else operation.value_serde
    shape = node.key if is_key else node.value
    return serde_of(given if given is not None else shape_of(shape))


def _decoded(data: bytes | None, kind: Any, node: Node | None, *, is_key: bool) -> Any:
    if data is None:
        return None
    if kind is not None:
        return serde_of(kind).decode(data)
    if node is None:
        return data
    shape = node.key if is_key else node.value
    if shape is None and not isinstance(node.operation, Source):
        with suppress(ValueError):
            return json.loads(data)
        return data.decode()
    return _serde(node, is_key=is_key).decode(data)


def _folder() -> str:
    """Returns a new folder, in memory if that can be: Spark writes a dozen small files a batch."""
    memory = Path("/dev/shm")
    return tempfile.mkdtemp(prefix="headwater-topology-", dir=memory if memory.is_dir() else None)


_shared: list[SparkSession] = []


def shared_session() -> SparkSession:
    """Returns the session that tests of topologies share. It takes seconds to start, once."""
    if not _shared or _shared[0]._sc._jsc is None:  # stopped by somebody else
        _shared[:] = [spark_session("topology-test", master="local[1]", settings=_SETTINGS)]
        atexit.register(_shared[0].stop)
    return _shared[0]


def _let_workers_import(spark: SparkSession) -> None:
    """Has workers find the modules of tests, where functions and types come from: the path of this
    process may have grown since the session began, which may be another's."""
    paths = dict.fromkeys(os.path.abspath(each) for each in sys.path)
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(paths)


__all__ = ["Record", "TopologyTest", "shared_session"]
