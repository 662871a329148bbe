"""Writes each micro-batch of a query in one transaction: all of its rows, in all topics, or none.

    from headwater.spark import exactly_once_writer

    writer = exactly_once_writer({"kafka.bootstrap.servers": "localhost:9092", "topic": "totals"})
    frame.writeStream.foreachBatch(writer).outputMode("update") \\
        .option("checkpointLocation", "/data/totals").start()

Consumers with isolation.level=read_committed see each result once, whatever fails and is repeated:
`transactions` says how a batch is recognized, `transaction_tasks` how tasks share a transaction.
"""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from headwater.client import errors
from headwater.client.errors import ClientError, RetriableError
from headwater.client.producer.shared import TransactionHandle
from headwater.model import TopicPartition
from headwater.spark.errors import OptionError
from headwater.spark.offsets import SourceOffset
from headwater.spark.options import Subscription
from headwater.spark.sink import SinkOptions, check_columns, parse
from headwater.spark.transaction_tasks import REPEATED, SEALED, SENT, Seal, Send
from headwater.spark.transactions import QueryTransactions, one_transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_log = logging.getLogger("headwater.spark")

_EVENTS_MS = 30_000
_QUERY_ID = "sql.streaming.queryId"


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
        _send(frame, self._options, transactions.begin())
        offsets: Mapping[TopicPartition, int] = {}
        if self._group is not None and self._checkpoint is not None:
            offsets = source_offsets(frame.sparkSession, self._checkpoint, batch_id)
        transactions.commit(batch_id, self._group, offsets)


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


def source_offsets(
    spark: SparkSession, checkpoint: str, batch_id: int
) -> dict[TopicPartition, int]:
    """Reads from a checkpoint where a batch ends, in all topics of its sources. Sources of another
    kind are left out."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint.rstrip('/')}/offsets/{batch_id}")
    stream = path.getFileSystem(spark._jsc.hadoopConfiguration()).open(path)
    try:
        text = str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
    found: dict[TopicPartition, int] = {}
    everything = Subscription(pattern=".*")
    for line in text.splitlines()[2:]:  # after the version and the metadata of the batch
        try:
            found |= SourceOffset.from_json(json.loads(line), everything).offsets
        except Exception:  # whatever another source writes
            _log.debug("offsets of another source: %s", line)
    return found


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
