"""Reads the records that a topic has now: a snapshot of offsets, then tasks.

With `pushFilters=true` (and Spark's setting for it) conditions on topic, partition, offset and
timestamp narrow the ranges; Spark still checks every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.client.errors import ClientError
from headwater.model import ZERO_ID, TopicPartition
from headwater.spark.errors import FilesNotVisible, OptionError, plainly
from headwater.spark.offset_reader import (
    OffsetReader,
    ids_of,
    offset_reader_of_process,
    partitions_of,
)
from headwater.spark.options import SourceOptions, parse
from headwater.spark.partition_reader import Task, TaskReader
from headwater.spark.ranges import OffsetRange, cores_here, pack

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def make_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Makes a reader. Spark refuses readers that take filters unless a setting of the session
    allows them, so only option pushFilters gives one."""
    parsed = parse(options, streaming=False)
    return (FilteringReader if parsed.push_filters else BatchReader)(parsed, schema)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._tasks = TaskReader(options, to_arrow_schema(schema, timezone="UTC"))
        self._filters: list[Filter] = []

    @plainly
    def partitions(self) -> list[InputPartition]:
        options = self._options
        reader = offset_reader_of_process(options)
        topics = reader.topics(options)
        partitions = partitions_of(topics, options.subscription)
        starts = reader.resolve(options.starting, partitions, options, option="startingOffsets")
        ends = reader.resolve(options.ending, partitions, options, option="endingOffsets")
        ids = ids_of(topics)
        ranges = []
        for tp in partitions:
            if starts[tp] > ends[tp] and options.fail_on_data_loss:
                raise OptionError(f"{tp}: the read starts at {starts[tp]} and ends at {ends[tp]}")
            if starts[tp] < ends[tp]:
                topic_id = ids.get(tp.topic, ZERO_ID)
                ranges.append(OffsetRange(tp.topic, tp.partition, starts[tp], ends[tp], topic_id))
        ranges = _narrowed(reader, ranges, self._filters)
        tasks = pack(
            ranges,
            cores=cores_here(),
            tasks=options.tasks,
            min_partitions=options.min_partitions,
            records_max=options.max_records_per_partition,
        )
        directories = _directories(reader, ranges) if options.from_files else {}
        return [
            InputPartition(Task(each, tuple(directories[one.tp] for one in each if directories)))
            for each in tasks
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark passes a partition without a value if there are none at all.
        return iter(()) if partition.value is None else self._tasks.read(partition.value)


class FilteringReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = list(filters)
        return filters  # they narrow the ranges; Spark checks each row


def _directories(reader: OffsetReader, ranges: list[OffsetRange]) -> dict[TopicPartition, str]:
    try:
        places = reader.places([each.tp for each in ranges])
    except ClientError as error:
        raise FilesNotVisible(
            f"read.from=files: the brokers do not report where their logs are: {error}"
        ) from None
    for each in ranges:
        if each.tp not in places:
            raise FilesNotVisible(f"{each}: its leader does not report its directory")
    return {tp: place.directory for tp, place in places.items()}


# Filters


def _narrowed(
    reader: OffsetReader, ranges: list[OffsetRange], filters: list[Filter]
) -> list[OffsetRange]:
    since_ms: int | None = None
    for each in filters:
        if not hasattr(each, "attribute") or len(each.attribute) != 1:
            continue
        column = each.attribute[0]
        if column in ("topic", "partition"):
            ranges = [one for one in ranges if _may_be(each, getattr(one, column))]
        elif column == "offset":
            ranges = [cut for one in ranges if (cut := _cut(one, each)) is not None]
        elif column == "timestamp" and isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual):
            moment = _milliseconds(each.value)
            if moment is not None:
                since_ms = max(since_ms or 0, moment)
    if since_ms is not None and ranges:
        # All records before the first one of that time are older. There is no such bound for the
        # end: records may come in any order of their times.
        starts = reader.at({one.tp: since_ms for one in ranges})
        ranges = [
            replace(one, start=max(one.start, starts[one.tp]))
            for one in ranges
            if 0 <= starts[one.tp] < one.end
        ]
    return ranges


def _may_be(condition: Filter, value: str | int) -> bool:
    match condition:
        case EqualTo(value=wanted):
            return bool(wanted == value)
        case In(value=wanted):
            return value in wanted
    return True


def _cut(whole: OffsetRange, condition: Filter) -> OffsetRange | None:
    start, end = whole.start, whole.end
    match condition:
        case EqualTo(value=offset):
            start, end = max(start, offset), min(end, offset + 1)
        case GreaterThan(value=offset):
            start = max(start, offset + 1)
        case GreaterThanOrEqual(value=offset):
            start = max(start, offset)
        case LessThan(value=offset):
            end = min(end, offset)
        case LessThanOrEqual(value=offset):
            end = min(end, offset + 1)
    return replace(whole, start=start, end=end) if start < end else None


def _milliseconds(value: object) -> int | None:
    return int(value.timestamp() * 1000) if isinstance(value, datetime) else None
