"""Reads a topic as it grows: decides which offsets the next micro-batch has.

It lives as long as the query, in a process on the driver. Spark's checkpoint is the truth about
progress; the state here only makes the next answer quicker.

The start that Spark gives with `latestOffset` is the end of the last batch that is finished, so
that is when progress is committed to the group. (`commit` is not called for the last batch before
a query stops.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headwater.client.errors import ClientError
from headwater.client.metadata import Topic
from headwater.model import TopicPartition
from headwater.spark.errors import DataLost, plainly
from headwater.spark.offset_reader import (
    OffsetReader,
    ids_of,
    offset_reader_of_process,
    partitions_of,
)
from headwater.spark.offsets import (
    Offsets,
    SourceOffset,
    begin,
    limited_by_bytes,
    limited_by_count,
    near_the_end_of_retention,
    waiting_count,
)
from headwater.spark.options import parse
from headwater.spark.partition_reader import Task, TaskReader
from headwater.spark.ranges import cores_here, pack, plan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("headwater.spark")

_TOPICS_SECONDS = 1.0
_WEIGHTS_SECONDS = 60.0
_ALARM_SECONDS = 60.0
# An idle query asks again after 10 ms. If it took longer, Spark was busy with a batch, of this
# source or of another one in the same query, which must not wait for this one.
_IDLE_SECONDS = 0.05
_RECORD_BYTES = 1024  # where brokers do not report the size of their logs
_RECORD_BYTES_MAX = 1024 * 1024


class MicroBatchStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse(options, streaming=True)
        self._tasks = TaskReader(self._options, to_arrow_schema(schema, timezone="UTC"))
        self._topics: dict[str, Topic] = {}
        self._topics_at = float("-inf")
        self._weights: dict[TopicPartition, float] = {}
        self._weights_at = float("-inf")
        self._alarmed_at = float("-inf")
        self._answered_at = float("-inf")
        self._triggered_at = float("-inf")
        self._target: Offsets | None = None  # with Trigger.AvailableNow: where the query ends
        self._latest: SourceOffset | None = None
        self._committed: SourceOffset | None = None

    @property
    def _offset_reader(self) -> OffsetReader:
        return offset_reader_of_process(self._options)

    def _now(self) -> float:
        return self._offset_reader.host.clock.monotonic()

    # Calls of Spark, in their order

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        partitions = self._partitions()
        offsets = self._offset_reader.resolve(
            self._options.starting,
            partitions,
            self._options,
            option="startingOffsets",
        )
        return SourceOffset(offsets, ids_of(self._topics)).to_json()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        target = self._offset_reader.latest(self._partitions())
        if (stop := self._options.stop) is not None:
            target = {tp: min(offset, stop[tp]) for tp, offset in target.items() if tp in stop}
        self._target = target

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tells Spark that there is a limit. Spark has no limits that combine, so `latestOffset`
        takes them from the options."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = SourceOffset.from_json(start, self._options.subscription)
        self._commit(position)
        is_idle = self._now() - self._answered_at < _IDLE_SECONDS
        end = self._end()
        if is_idle and self._target is None and not _has_more(position, end):
            self._offset_reader.wait(end, self._options.wait_ms)
            end = self._end()
        self._latest = end
        answer = self._limited(position, end, limit)
        self._answered_at = self._now()
        return answer.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.to_json()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options = self._options
        first = SourceOffset.from_json(start, options.subscription)
        last = SourceOffset.from_json(end, options.subscription)
        self._partitions()
        earliest = self._earliest(last)
        planned = plan(first, last, earliest)
        self._alarm(first, earliest, last)
        if planned.losses:
            said = "; ".join(planned.losses)
            if options.fail_on_data_loss:
                raise DataLost(f"{said}. failOnDataLoss=false continues without them")
            _log.warning("%s; continuing without them", said)
        tasks = pack(
            planned.ranges,
            cores=cores_here(),
            tasks=options.tasks,
            min_partitions=options.min_partitions,
            records_max=options.max_records_per_partition,
        )
        return [InputPartition(Task(each)) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(SourceOffset.from_json(end, self._options.subscription))

    # What there is

    def _partitions(self) -> list[TopicPartition]:
        now = self._now()
        if now - self._topics_at > _TOPICS_SECONDS:
            self._topics = self._offset_reader.topics(self._options)
            self._topics_at = now
        return partitions_of(self._topics, self._options.subscription)

    def _end(self) -> SourceOffset:
        partitions = self._partitions()
        offsets = self._offset_reader.latest(partitions)
        if self._target is not None:
            # Partitions that came after the query began are for the next one.
            offsets = {
                tp: min(offset, self._target[tp])
                for tp, offset in offsets.items()
                if tp in self._target
            }
        return SourceOffset(offsets, ids_of(self._topics))

    def _earliest(self, end: SourceOffset) -> Offsets:
        known = set(partitions_of(self._topics, self._options.subscription))
        return self._offset_reader.earliest(tp for tp in end.offsets if tp in known)

    # How much of it

    def _limited(self, start: SourceOffset, end: SourceOffset, limit: ReadLimit) -> SourceOffset:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return end
        fresh = [tp for tp in end.offsets if tp not in start.offsets]
        changed = [tp for tp in end.offsets if start.ids.get(tp.topic) != end.ids.get(tp.topic)]
        unknown = {*fresh, *changed}
        first = begin(start, end, self._offset_reader.earliest(unknown) if unknown else {})
        waiting = waiting_count(first, end.offsets)
        if not waiting:
            return end
        if self._is_too_little(waiting):
            return start
        offsets = end.offsets
        if options.max_offsets_per_trigger is not None:
            offsets = limited_by_count(first, offsets, options.max_offsets_per_trigger)
        most = options.max_bytes_per_trigger
        if most is not None and waiting_count(first, offsets) * _RECORD_BYTES_MAX > most:
            offsets = limited_by_bytes(first, offsets, most, self._weights_of(offsets))
        self._triggered_at = self._now()
        return SourceOffset(offsets, end.ids)

    def _is_too_little(self, waiting: int) -> bool:
        """Implements minOffsetsPerTrigger: a batch waits for that many, up to maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if least is None or waiting >= least or self._target is not None:
            return False
        passed_ms = (self._now() - self._triggered_at) * 1000
        if passed_ms >= self._options.max_trigger_delay_ms:
            return False
        self._offset_reader.pause(self._options.wait_ms)
        return True

    def _weights_of(self, offsets: Offsets) -> Mapping[TopicPartition, float]:
        """Estimates how many bytes an offset of each partition takes, from the whole log."""
        now = self._now()
        if now - self._weights_at > _WEIGHTS_SECONDS or any(
            tp not in self._weights for tp in offsets
        ):
            self._weights_at = now
            self._weights = dict.fromkeys(offsets, float(_RECORD_BYTES))
            try:
                places = self._offset_reader.places(offsets)
                first, last = (
                    self._offset_reader.earliest(offsets),
                    self._offset_reader.latest(offsets),
                )
            except ClientError as error:
                _log.warning(
                    "maxBytesPerTrigger: the brokers do not report the size of their logs (%s); "
                    "assuming %d bytes for each record",
                    error,
                    _RECORD_BYTES,
                )
                return self._weights
            for tp, place in places.items():
                count = last[tp] - first[tp]
                if place.size_bytes > 0 and count > 0:
                    self._weights[tp] = place.size_bytes / count
        return self._weights

    # Commits and alarms

    def _commit(self, position: SourceOffset) -> None:
        group = self._options.group
        if group is None or position == self._committed or not position.offsets:
            return
        self._offset_reader.commit(group, position)
        self._committed = position

    def _alarm(self, read_to: SourceOffset, earliest: Offsets, end: SourceOffset) -> None:
        """Warns once a minute while retention is about to delete records that were not read."""
        now = self._now()
        latest = (self._latest or end).offsets
        if not self._options.retention_alarm or now - self._alarmed_at < _ALARM_SECONDS:
            return
        for tp in near_the_end_of_retention(
            read_to.offsets, earliest, latest, self._options.retention_alarm
        ):
            self._alarmed_at = now
            _log.warning(
                "retention alarm: %s is read up to offset %d of %d, and its log now starts at %d; "
                "raise retention.ms or retention.bytes of the topic, or give the query more cores",
                tp,
                read_to.offsets[tp],
                latest[tp],
                earliest[tp],
            )


class RefusedStream(DataSourceStreamReader):
    """Stands in for a stream with invalid options, and raises the error at the first call."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


def _has_more(start: SourceOffset, end: SourceOffset) -> bool:
    return start.ids != end.ids or any(
        start.offsets.get(tp) != offset for tp, offset in end.offsets.items()
    )
