"""The two passes over the rows of a micro-batch that is written in one transaction.

In a transaction the batches of a partition are numbered, so each partition needs a single writer.
The first pass makes compressed record batches where the rows are; the second one gets all batches
of a partition in one task and sends them. Few large rows are shuffled instead of many small ones.

The first pass writes nothing, and Spark may repeat its tasks. One of the second that is repeated
could be taken for its own predecessor: batches with the same numbers are duplicates for a broker,
whatever is in them. So it writes nothing and says so, and the driver aborts. Errors are results,
too: Spark would try again, and report how that failed instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from random import Random

import pyarrow as pa

from headwater._blocking.loop import LoopThread
from headwater.client.cluster import Cluster
from headwater.client.errors import ClientError
from headwater.client.producer import Producer
from headwater.client.producer.sealed import BatchMaker, SealedBatch
from headwater.client.producer.shared import TransactionHandle, joining, rejoin, submit_sealed
from headwater.io import Host, process_id
from headwater.spark.errors import UNANSWERED, plainly_each, unanswered
from headwater.spark.sink import SinkOptions

SEALED = "topic string, partition int, count int, records binary"
SENT = "stage int, rows bigint, error string, text string"
REPEATED = "TaskRepeated"

_SEALED = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("count", pa.int32()),
        ("records", pa.binary()),
    ]
)
_SENT = pa.schema(
    [("stage", pa.int32()), ("rows", pa.int64()), ("error", pa.string()), ("text", pa.string())]
)
_PIECE_BYTES = 4 * 1024 * 1024


class Seal:
    """The first pass: rows in, record batches out."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return plainly_each(_table(sealed) for sealed in seal(self._options, batches))


def seal(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[list[SealedBatch]]:
    """Makes record batches of rows, in pieces, in the order of the rows of each partition."""
    maker = BatchMaker(options.transactional_config("tasks"), Random())
    for rows in batches:
        at = 0
        while at < rows.num_rows:
            at, unknown = maker.add(rows, options.topic, at)
            if unknown is not None:
                maker.know(unknown, _partitions(options, unknown))
            if maker.ready_bytes >= _PIECE_BYTES:
                yield maker.take()
    if left := maker.finish():
        yield left


def _table(batches: list[SealedBatch]) -> pa.RecordBatch:
    columns = zip(*batches, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SEALED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SEALED)


class Send:
    """The second pass: record batches in, one row about them out."""

    def __init__(self, options: SinkOptions, handle: TransactionHandle) -> None:
        self._options = options
        self._handle = handle

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        rows = 0
        error: tuple[str, str] | tuple[None, None] = (None, None)
        if context.attemptNumber() > 0:
            error = REPEATED, f"attempt {context.attemptNumber()} of a task that writes"
        else:
            try:
                rows = self._send(batches)
            except ClientError as problem:
                error = type(problem).__name__, str(problem)
        row = {"stage": context.stageId(), "rows": rows, "error": error[0], "text": error[1]}
        yield pa.RecordBatch.from_pylist([row], schema=_SENT)

    def _send(self, batches: Iterable[pa.RecordBatch]) -> int:
        rows = 0
        writer: _Writer | None = None
        try:
            for batch in batches:
                writer = writer or _writer_of_process(self._options, self._handle)
                for topic, partition, count, records in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                ):
                    writer.add(SealedBatch(topic, partition, count, records))
                    rows += count
            if writer is not None:
                writer.flush()
        except UNANSWERED as error:
            _discard_writer(self._options)
            raise unanswered(error, f"topic {self._options.topic or '(by row)'}") from None
        except BaseException:
            _discard_writer(self._options)
            raise
        return rows


class _Writer:
    """A producer in the transaction of another process, with its event loop in a thread."""

    def __init__(self, options: SinkOptions, handle: TransactionHandle) -> None:
        self.handle = handle
        self._thread = LoopThread("headwater-sink")
        self._producer: Producer = joining(
            handle, options.bootstrap, config=options.transactional()
        )
        try:
            self._thread.call(self._producer.start)
        except BaseException:
            self._thread.close()
            raise

    def join(self, handle: TransactionHandle) -> None:
        async def join() -> None:
            rejoin(self._producer, handle)

        if handle != self.handle:
            self._thread.call(join)
            self.handle = handle

    def add(self, batch: SealedBatch) -> None:
        self._thread.call(lambda: submit_sealed(self._producer, batch))

    def flush(self) -> None:
        self._thread.call(self._producer.flush)

    def close(self) -> None:
        with suppress(ClientError):  # its task has had the error already
            self._thread.close(lambda: self._producer.close(0))


class _Metadata:
    """The connections that tell the number of a topic's partitions."""

    def __init__(self, options: SinkOptions) -> None:
        self._config = options.client_config()
        self._thread = LoopThread("headwater-metadata")
        self._cluster = Cluster(self._config, Host.system())
        try:
            self._thread.call(self._cluster.start)
        except BaseException:
            self._thread.close()
            raise

    def partitions(self, topic: str) -> int:
        async def ask() -> int:
            deadline = self._cluster.deadline(self._config.max_block_ms)
            found = await self._cluster.topics([topic], deadline=deadline, create=True)
            self._cluster.follow(topic)
            return len(found[topic].partitions)

        return self._thread.call(ask)


# One of each for a process and its sink: Spark keeps Python workers, so that a micro-batch costs no
# connection. Keyed by process, because a fork must not use its parent's sockets.
_writers: dict[tuple[int, SinkOptions, str], _Writer] = {}
_clusters: dict[tuple[int, SinkOptions], _Metadata] = {}
_OF_PROCESS_MAX = 4


def _writer_of_process(options: SinkOptions, handle: TransactionHandle) -> _Writer:
    key = (process_id(), options, handle.transactional_id)
    writer = _writers.pop(key, None)
    if writer is None:
        writer = _Writer(options, handle)
    writer.join(handle)
    _writers[key] = writer  # in the order of their last use
    while len(_writers) > _OF_PROCESS_MAX:
        _writers.pop(next(iter(_writers))).close()
    return writer


def _discard_writer(options: SinkOptions) -> None:
    for key in [each for each in _writers if each[:2] == (process_id(), options)]:
        _writers.pop(key).close()


def _partitions(options: SinkOptions, topic: str) -> int:
    key = (process_id(), options)
    metadata = _clusters.get(key)
    try:
        if metadata is None:
            metadata = _clusters[key] = _Metadata(options)
        return metadata.partitions(topic)
    except UNANSWERED as error:
        raise unanswered(error, f"topic {topic}") from None
