"""Writes the ends of transactions into the partitions that this broker leads.

Markers come from the coordinators of other brokers (`handlers/write_txn_markers`) and from this
broker's own. Those of the groups' topic go through the group coordinator, which has to know of
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.coordinators.groups import OFFSETS_TOPIC, GroupCoordinator
from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.protocol.messages.write_txn_markers import WritableTxnMarker

Codes = Mapping[TopicPartition, ErrorCode]
Done = Callable[[Codes], None]

# A coordinator of transactions knows leaders, and no coordinators of groups.
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class MarkerWriter:
    def __init__(
        self, partitions: Partitions, groups: GroupCoordinator, clock: Clock, *, timeout_ms: int
    ) -> None:
        """`timeout_ms` is how long a marker may take to be replicated."""
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._timeout_seconds = timeout_ms / 1000

    def write(self, marker: WritableTxnMarker, done: Done) -> None:
        """Appends a marker to its partitions. Calls `done` with an outcome for each of them when
        all are committed or refused, possibly before this returns."""
        write = _Write(done)
        for topic in marker.topics:
            for index in topic.partition_indexes:
                tp = TopicPartition(topic.name, index)
                try:
                    if topic.name == OFFSETS_TOPIC:
                        self._append_to_group(tp, marker, write)
                    else:
                        self._append(tp, marker, write)
                except ApiError as refusal:
                    write.ended(tp, refusal.code)
        write.begin(self._timeout_seconds)

    def _append(self, tp: TopicPartition, marker: WritableTxnMarker, write: _Write) -> None:
        partition = self._find(tp)
        appended = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            commits=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            now_ms=self._clock.wall_ms(),
        )
        end = appended.last_offset + 1
        if partition.high_watermark >= end:
            write.ended(tp, ErrorCode.NONE)
        else:
            write.wait_for(partition, end)

    def _append_to_group(
        self, tp: TopicPartition, marker: WritableTxnMarker, write: _Write
    ) -> None:
        self._find(tp)
        try:
            written = self._groups.write_marker(
                tp.partition,
                marker.producer_id,
                marker.producer_epoch,
                commits=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        except ApiError as refusal:
            raise _for_coordinators(refusal) from None
        if written is None:
            write.ended(tp, ErrorCode.NONE)
        else:
            write.wait_for_group(tp, asyncio.ensure_future(written))

    def _find(self, tp: TopicPartition) -> Partition:
        try:
            return self._partitions.get(tp.topic, tp.partition)
        except ApiError as refusal:  # as Kafka answers for whatever it has no log of
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, refusal.message) from None


class _Write:
    """One marker that is appended to some partitions."""

    __slots__ = ("_codes", "_done", "_timer", "_waiting")

    def __init__(self, done: Done) -> None:
        self._done = done
        self._codes: dict[TopicPartition, ErrorCode] = {}
        self._waiting: dict[TopicPartition, Callable[[], None]] = {}  # how each wait is ended
        self._timer: asyncio.TimerHandle | None = None

    def ended(self, tp: TopicPartition, code: ErrorCode) -> None:
        self._codes[tp] = code

    def wait_for(self, partition: Partition, end: int) -> None:
        done = partial(self._on_replicated, partition)
        self._waiting[partition.tp] = partial(partition.forget, end, done)
        partition.when_replicated(end, done)

    def wait_for_group(self, tp: TopicPartition, written: asyncio.Future[None]) -> None:
        self._waiting[tp] = _nothing  # the group coordinator has a timeout of its own
        written.add_done_callback(partial(self._on_group, tp))

    def begin(self, timeout_seconds: float) -> None:
        """Answers if nothing has to be waited for."""
        if self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout_seconds, self._on_timeout)
        else:
            self._done(self._codes)

    def _on_replicated(self, partition: Partition, failure: ApiError | None) -> None:
        try:
            if failure is not None:
                raise failure
            partition.check_enough_in_sync()
        except ApiError as refusal:
            self._on_ended(partition.tp, refusal.code)
        else:
            self._on_ended(partition.tp, ErrorCode.NONE)

    def _on_group(self, tp: TopicPartition, written: asyncio.Future[None]) -> None:
        try:
            written.result()
        except ApiError as refusal:
            self._on_ended(tp, _for_coordinators(refusal).code)
        else:
            self._on_ended(tp, ErrorCode.NONE)

    def _on_ended(self, tp: TopicPartition, code: ErrorCode) -> None:
        if self._waiting.pop(tp, None) is None:
            return
        self._codes[tp] = code
        if not self._waiting:
            self._finish()

    def _on_timeout(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for tp, stop in waiting.items():
            stop()
            self._codes[tp] = ErrorCode.REQUEST_TIMED_OUT
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._done(self._codes)


def _nothing() -> None: ...


def _for_coordinators(refusal: ApiError) -> ApiError:
    if refusal.code in _NOT_READY:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, refusal.message)
    return refusal
