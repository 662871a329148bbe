"""Reads the ranges of a task, from leaders or from files, into Arrow batches.

It runs in Spark's Python workers on the executors, one range after the other: a task has one
thread, and its connection to a leader is kept for the next task.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.client.errors import OffsetOutOfRange
from headwater.client.ranges import Chunk, RangeReader
from headwater.spark.columns import Columns, convert
from headwater.spark.errors import DataLost, NotInFiles, plainly_each
from headwater.spark.offset_reader import OffsetReader, offset_reader_of_process
from headwater.spark.options import SourceOptions, client_config
from headwater.spark.ranges import OffsetRange

_log = logging.getLogger("headwater.spark")

_FETCH_BYTES_MAX = 8 * 1024 * 1024
_FETCH_BYTES_MIN = 64 * 1024
# The assumed size of a record: a short range must not fetch megabytes.
_RECORD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Task:
    """Ranges that are read together; to read files, with the log directory of each."""

    ranges: tuple[OffsetRange, ...]
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Is pickled to the executors with every task."""

    options: SourceOptions
    schema: pa.Schema

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        return plainly_each(self._read(task))

    def _read(self, task: Task) -> Iterator[pa.RecordBatch]:
        options = self.options
        offset_reader = offset_reader_of_process(options)
        columns = Columns(self.schema)
        value_type = None
        if options.value_format != "bytes":
            value_type = self.schema.field("value").type
        for at, wanted in enumerate(task.ranges):
            directory = task.directories[at] if task.directories else None
            chunks = _chunks(offset_reader, wanted, directory, options)
            for chunk in chunks:
                for batch in columns.batches(
                    chunk.data,
                    topic=wanted.topic,
                    partition=wanted.partition,
                    from_offset=chunk.from_offset,
                    to_offset=wanted.end,
                    timestamp_types=chunk.timestamp_types,
                    aborted=chunk.aborted,
                ):
                    if value_type is None:
                        yield batch
                    else:
                        yield convert(
                            batch,
                            value_format=options.value_format,
                            type_=value_type,
                            fails=options.value_fails,
                        )


def _chunks(
    offset_reader: OffsetReader, wanted: OffsetRange, directory: str | None, options: SourceOptions
) -> Iterator[Chunk]:
    if directory is None:
        yield from _broker_chunks(offset_reader, wanted, options)
        return
    from headwater.spark.files import file_chunks

    try:
        yield from file_chunks(
            offset_reader.host.disk,
            directory,
            wanted,
            read_committed=options.read_committed,
            log_start=lambda: offset_reader.log_start(wanted.tp),
        )
    except NotInFiles as missing:
        _log.warning("%s: %s; continuing with the broker", wanted, missing)
        yield from _broker_chunks(offset_reader, replace(wanted, start=missing.offset), options)


def _broker_chunks(
    offset_reader: OffsetReader, wanted: OffsetRange, options: SourceOptions
) -> Iterator[Chunk]:
    config = client_config(options)
    most = _FETCH_BYTES_MAX
    if "max.partition.fetch.bytes" in config.explicit:
        most = config.max_partition_fetch_bytes
    if "fetch.max.bytes" in config.explicit:
        most = min(most, config.fetch_max_bytes)
    reader = RangeReader(
        offset_reader.run(offset_reader.cluster(), about=wanted),
        fetch_bytes=min(most, max(_FETCH_BYTES_MIN, len(wanted) * _RECORD_BYTES)),
        read_committed=options.read_committed,
        patience_ms=options.poll_timeout_ms,
        rack=config.client_rack,
    )
    offset = wanted.start
    while offset < wanted.end:
        chunks = reader.chunks(wanted.tp, offset, wanted.end, topic_id=wanted.topic_id)
        try:
            for chunk in _blocking(offset_reader, chunks):
                yield chunk
                offset = chunk.next_offset
            return
        except OffsetOutOfRange as error:
            offset = _after_loss(offset_reader, wanted, offset, error, options)


def _blocking(offset_reader: OffsetReader, chunks: AsyncIterator[Chunk]) -> Iterator[Chunk]:
    async def following() -> Chunk | None:
        return await anext(chunks, None)

    while (chunk := offset_reader.run(following())) is not None:
        yield chunk


def _after_loss(
    offset_reader: OffsetReader,
    wanted: OffsetRange,
    offset: int,
    error: OffsetOutOfRange,
    options: SourceOptions,
) -> int:
    """Returns the offset to continue at after records were deleted. DataLost if that is an
    error."""
    if options.fail_on_data_loss:
        raise DataLost(
            f"{error}. The task reads {wanted.start} up to {wanted.end}. Records were deleted "
            "before they were read, by retention or by hand; failOnDataLoss=false continues "
            "without them"
        ) from None
    start = offset_reader.log_start(wanted.tp)
    following = min(max(start, offset + 1), wanted.end) if start > offset else wanted.end
    _log.warning("%s; skipping offsets %d up to %d", error, offset, following)
    return following
