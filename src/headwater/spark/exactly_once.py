"""Writes each micro-batch of a query in one transaction: all of its rows, in all topics, or none.

    from headwater.spark import exactly_once_writer

    writer = exactly_once_writer({"kafka.bootstrap.servers": "localhost:9092", "topic": "totals"})
    frame.writeStream.foreachBatch(writer).outputMode("update") \\
        .option("checkpointLocation", "/data/totals").start()

Consumers with isolation.level=read_committed see each result once, whatever fails and is repeated:
`transactions` says how a batch is recognized, `transaction_tasks` how tasks share a transaction,
`small_batches` which ones need no tasks.
"""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from headwater.client import errors
from headwater.client.errors import ClientError, RetriableError
from headwater.client.producer.shared import TransactionHandle
from headwater.model import TopicPartition
from headwater.spark.errors import UNANSWERED, OptionError, unanswered
from headwater.spark.offsets import Offsets, SourceOffset
from headwater.spark.options import Subscription
from headwater.spark.sink import SinkOptions, check_columns, parse
from headwater.spark.small_batches import SmallBatches, few_rows
from headwater.spark.transaction_tasks import REPEATED, SEALED, SENT, Seal, Send
from headwater.spark.transactions import QueryTransactions, one_transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

_log = logging.getLogger("headwater.spark")

_EVENTS_MS = 30_000
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a batch ends, in the topics of its sources."""

    offsets: Offsets
    is_all: bool  # there are no sources of another kind, and no two of the same topic


class TaskRepeated(RetriableError):
    """A task that writes was run a second time, so its batch has to be repeated as a whole."""


class ExactlyOnceWriter:
    """For `foreachBatch` of one query."""

    def __init__(
        self, options: Mapping[str, str], *, group: str | None, checkpoint: str | None
    ) -> None:
        self._options = parse(options)
        self._group = group
        self._checkpoint = checkpoint
        self._small_batches = SmallBatches()
        self._known_ends: dict[int, Ends] = {}  # of the last batches
        self._transactions: dict[str, QueryTransactions] = {}
        # Not at the end of the process, which ends the connections in any case.
        weakref.finalize(self, _close_all, self._transactions).atexit = False

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        spark = frame.sparkSession
        query_id = _query_id(spark)
        check_columns(frame.schema, self._options.topic)
        transactions = self._transactions.get(query_id)
        if transactions is None:
            _check_session(spark)
            transactions = QueryTransactions(self._options, query_id)
            self._transactions[query_id] = transactions
            self._known_ends = {}  # the checkpoint may be another one
        try:
            if transactions.is_done(batch_id):
                # Its rows are there. But what Spark keeps as state has to be made again.
                frame.write.format("noop").mode("overwrite").save()
                return
            self._write(frame, batch_id, transactions)
        except BaseException as error:
            del self._transactions[query_id]
            transactions.close()
            explained = transactions.explained(error, batch_id)
            if explained is error:
                raise
            raise explained from None

    def _write(self, frame: DataFrame, batch_id: int, transactions: QueryTransactions) -> None:
        ends = self._ends(frame.sparkSession, batch_id)
        rows = self._few_rows(frame, batch_id)
        if rows is None:
            _send(frame, self._options, transactions.begin())
        else:
            try:
                transactions.write(rows)
            except UNANSWERED as error:
                raise unanswered(error, f"topic {self._options.topic or '(by row)'}") from None
        transactions.commit(batch_id, self._group, ends.offsets)

    def _few_rows(self, frame: DataFrame, batch_id: int) -> list[pa.RecordBatch] | None:
        """Returns the rows of a batch that the driver may write itself."""
        start, end = (self._ends(frame.sparkSession, each) for each in (batch_id - 1, batch_id))
        if not self._small_batches.is_small(
            start.offsets if start.is_all else None, end.offsets if end.is_all else None
        ):
            return None
        rows = few_rows(frame, frame.columns)
        self._small_batches.found(fits=rows is not None)
        return rows

    def _ends(self, spark: SparkSession, batch_id: int) -> Ends:
        if self._group is None or self._checkpoint is None or batch_id < 0:
            return Ends({}, is_all=False)
        if batch_id not in self._known_ends:
            near = (batch_id - 1, batch_id + 1)
            known = {each: ends for each, ends in self._known_ends.items() if each in near}
            self._known_ends = known | {batch_id: source_ends(spark, self._checkpoint, batch_id)}
        return self._known_ends[batch_id]


def exactly_once_writer(
    options: Mapping[str, str], *, group: str | None = None, checkpoint: str | None = None
) -> ExactlyOnceWriter:
    """Returns a function for `foreachBatch` that writes each micro-batch in one transaction.

    `options` are those of the sink. With `group` and `checkpoint`, the query's checkpointLocation,
    the offsets that it has read are committed for the group, in the same transaction; they are for
    tools that show the lag. OptionError names an invalid option.
    """
    return ExactlyOnceWriter(options, group=group, checkpoint=checkpoint)


def write_exactly_once(frame: DataFrame, options: Mapping[str, str]) -> None:
    """Writes a table in one transaction: all of its rows, or none. `options` are those of the sink.

    `frame.write.format("headwater")` with option delivery=exactly_once does so too, but there all
    rows pass through the driver; here they do not."""
    checked = parse(options)
    if frame.isStreaming:
        raise OptionError("write_exactly_once is for tables; a stream needs exactly_once_writer")
    check_columns(frame.schema, checked.topic)
    _check_session(frame.sparkSession)
    with one_transaction(checked) as owned:
        _send(frame, checked, owned.begin())


def _send(frame: DataFrame, options: SinkOptions, handle: TransactionHandle) -> None:
    """Writes rows in a transaction. Raises if they may not all be there, once."""
    sealed = frame.mapInArrow(Seal(options), SEALED)
    # Without a number of partitions, Spark makes few tasks for few bytes. Rows of one task of the
    # first pass stay in order.
    placed = sealed.repartition("topic", "partition")
    sent = placed.mapInArrow(Send(options, handle), SENT).collect()
    _check(frame.sparkSession, sent)


def source_ends(spark: SparkSession, checkpoint: str, batch_id: int) -> Ends:
    """Reads from a checkpoint where a batch ends."""
    jvm: Any = spark._jvm
    # A class by its whole name: otherwise each part of the name is a call of its own.
    path_class = getattr(jvm, "org.apache.hadoop.fs.Path")
    reader = getattr(jvm, "org.apache.commons.io.IOUtils")
    path = path_class(f"{checkpoint.rstrip('/')}/offsets/{batch_id}")
    stream = path.getFileSystem(spark._jsc.hadoopConfiguration()).open(path)
    try:
        text = str(reader.toString(stream, "UTF-8"))
    finally:
        stream.close()
    found: dict[TopicPartition, int] = {}
    is_all = True
    everything = Subscription(pattern=".*")
    for line in text.splitlines()[2:]:  # after the version and the metadata of the batch
        try:
            offsets = SourceOffset.from_json(json.loads(line), everything).offsets
        except Exception:  # whatever another source writes
            _log.debug("offsets of another source: %s", line)
            is_all = False
            continue
        # Two sources may read the same topic, at different offsets.
        is_all = is_all and found.keys().isdisjoint(offsets)
        found |= offsets
    return Ends(found, is_all=is_all)


def _query_id(spark: SparkSession) -> str:
    try:
        query_id = spark.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # PySpark has several for what Spark Connect does not have
        raise OptionError(
            "exactly_once_writer is not supported with Spark Connect; there, use format("
            '"headwater") with option delivery=exactly_once'
        ) from None
    if not query_id:
        raise OptionError("exactly_once_writer is for foreachBatch of a streaming query")
    return str(query_id)


def _check_session(spark: SparkSession) -> None:
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise OptionError(
            "spark.speculation=true runs tasks twice, so that no batch could be written exactly "
            "once: set it to false"
        )


def _check(spark: SparkSession, sent: list[Row]) -> None:
    """Raises if a task has failed, or if one may have written twice."""
    for row in sent:
        if row.error == REPEATED:
            raise TaskRepeated(f"{row.text} was run; the batch is repeated as a whole")
        if row.error is not None:
            kind = getattr(errors, row.error, ClientError)
            raise kind(row.text)
    _wait_for_events(spark)
    tracker = spark.sparkContext.statusTracker()
    for stage in {row.stage for row in sent}:
        info = tracker.getStageInfo(stage)
        if info is None or info.currentAttemptId != 0:
            raise TaskRepeated("a stage that writes was run again; the batch is repeated")


def _wait_for_events(spark: SparkSession) -> None:
    """Waits until Spark has noted all that has happened, which it does a little later."""
    jsc: Any = spark.sparkContext._jsc
    try:
        jsc.sc().listenerBus().waitUntilEmpty(_EVENTS_MS)
    except Py4JJavaError as error:
        raise TaskRepeated(
            f"Spark does not say within {_EVENTS_MS / 1000:g} s whether a stage that writes was "
            "run again; the batch is repeated"
        ) from error


def _close_all(transactions: dict[str, QueryTransactions]) -> None:
    for each in transactions.values():
        each.close()
