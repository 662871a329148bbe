"""Writes the rows of a task: Arrow batches in, acknowledged records out.

A task hands its batches to a producer and flushes it: when Spark hears that a task is done, its
records are on every in-sync replica. Spark keeps Python workers, and a worker keeps its producers,
so that a micro-batch costs no connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headwater._blocking.loop import LoopThread
from headwater.client.errors import ClientError
from headwater.client.producer import Producer
from headwater.io import process_id
from headwater.spark.errors import UNANSWERED, plainly, unanswered
from headwater.spark.sink import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Written(WriterCommitMessage):
    """The message of a task whose rows are all acknowledged."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, iterator)


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Sends all rows and waits for their acknowledgements. ClientError names the topic and the
    reason."""
    rows = 0
    try:
        outlet = _outlet_of_process(options)
        for batch in batches:
            outlet.take(batch)
            rows += batch.num_rows
        outlet.flush()
    except UNANSWERED as error:
        _discard(options)
        if options.topic is None:
            raise
        raise unanswered(error, f"topic {options.topic}") from None
    except BaseException:
        # Its queued records belong to the failed task. The next task gets a new producer.
        _discard(options)
        raise
    return Written(rows)


class _Outlet:
    """A producer with its event loop in a thread, so that batches are sent while the task waits for
    the next one."""

    def __init__(self, options: SinkOptions) -> None:
        self._topic = options.topic
        self._thread = LoopThread("headwater-sink")
        self._producer = Producer(options.bootstrap, config=dict(options.settings))
        try:
            self._thread.call(self._producer.start)
        except BaseException:
            self._thread.close()
            raise

    def take(self, batch: pa.RecordBatch) -> None:
        self._thread.call(lambda: self._producer.submit_arrow(batch, topic=self._topic))

    def flush(self) -> None:
        self._thread.call(self._producer.flush)

    def close(self, *, timeout_ms: int) -> None:
        with suppress(ClientError):  # its task has had the error already
            self._thread.close(lambda: self._producer.close(timeout_ms))


# Keyed by process: a fork must not use its parent's sockets.
_of_process: dict[tuple[int, SinkOptions], _Outlet] = {}
_OF_PROCESS_MAX = 4


def _outlet_of_process(options: SinkOptions) -> _Outlet:
    key = (process_id(), options)
    outlet = _of_process.pop(key, None)
    if outlet is None:
        outlet = _Outlet(options)
    _of_process[key] = outlet  # in the order of their last use
    while len(_of_process) > _OF_PROCESS_MAX:
        oldest = next(iter(_of_process))
        _of_process.pop(oldest).close(timeout_ms=0)
    return outlet


def _discard(options: SinkOptions) -> None:
    outlet = _of_process.pop((process_id(), options), None)
    if outlet is not None:
        outlet.close(timeout_ms=0)
