"""Fetched data that waits to be returned to the user, and its way there.

A response stays raw bytes until the user asks for records: then `FetchBuffer` decodes as much as
it returns, from all partitions in turn. Records that `poll` returned, or that a loop took, count
as being processed until the user asks for more; `mark_consumed` is that moment.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from headwater._core import ArrowRecords, ConsumedRecord, CorruptBatch, FetchedRecords
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.subscription import PartitionState, Phase, Slice
from headwater.client.errors import CorruptRecord, DeserializationFailed, InvalidRecord
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("headwater.client")

# A loop gets as many records at once as the user's code processes in a few milliseconds; then
# the event loop has its turn.
_SLICE_RECORDS_MIN = 16
_SLICE_RECORDS_MAX = 512
_SLICE_SECONDS = 0.005


class FetchBuffer:
    """The partitions that have fetched data, in the order of their turns."""

    def __init__(self, config: ConsumerConfig, *, on_fetch_consumed: Callable[[], None]) -> None:
        self._on_fetch_consumed = on_fetch_consumed  # there is room to fetch more
        self._key = config.key_deserializer
        self._value = config.value_deserializer
        self._interceptors = config.interceptors
        self._decoded = 0
        self._ready: deque[PartitionState] = deque()
        self._in_loop: PartitionState | None = None  # whose delivery a loop is taking
        self._returned: list[PartitionState] = []  # the user has records of these at hand

    def add(self, state: PartitionState) -> None:
        """Puts a partition in the queue if it has fetched data."""
        if state.fetches and not state.is_ready:
            state.is_ready = True
            self._ready.append(state)

    @property
    def records_returned(self) -> int:
        """The number of records that the user got, for metrics."""
        current = self._slice()
        return self._decoded - (current.left if current is not None else 0)

    def _slice(self) -> Slice | None:
        return None if self._in_loop is None else self._in_loop.delivery

    # Positions

    def mark_consumed(self) -> None:
        """Notes that the user, who asks for more, has finished with all records it got."""
        for state in self._returned:
            state.mark_consumed()
        self._returned.clear()
        if self._in_loop is not None:
            self._in_loop.mark_consumed()
            if self._in_loop.delivery is None:
                self._in_loop = None

    def stop(self, state: PartitionState) -> None:
        """Stops a loop over this partition; records that were not taken are read again later."""
        if state is not self._in_loop or state.delivery is None:
            return
        self._decoded -= state.delivery.left
        self._in_loop = None
        state.take_back_delivery()
        self._returned.append(state)
        self._on_fetch_consumed()  # data that was released may have to be fetched again

    def forget(self, state: PartitionState) -> None:
        """Returns nothing more of a partition that is gone or is read from elsewhere."""
        if state is self._in_loop and state.delivery is not None:
            self._decoded -= state.delivery.left
            self._in_loop = None
            state.drop_delivery()
        if state in self._returned:
            self._returned.remove(state)

    def skip(self, state: PartitionState, offset: int) -> None:
        """Moves past the record at this offset, which is the next one and cannot be read."""
        fetch = state.fetches[0]
        fetch.rewind(offset + 1)
        self._on_decoded(state, fetch)
        state.mark_consumed()

    # Records

    def take(self, records_max: int) -> list[ConsumedRecord]:
        """Returns up to `records_max` records of any partitions."""
        taken = self._take_rest(records_max)
        while len(taken) < records_max and (state := self._next()) is not None:
            try:
                _, records = self._decode(state, records_max - len(taken))
            except InvalidRecord:
                if taken:
                    break  # the next call meets it again
                raise
            if records:
                taken = taken + records if taken else records
            self._returned.append(state)  # also without records: the position has moved
        return taken

    def _take_rest(self, records_max: int) -> list[ConsumedRecord]:
        """Takes what a loop has left of its slice, up to `records_max` records."""
        state, current = self._in_loop, self._slice()
        if state is None or current is None:
            return []
        state.finish_delivery()
        rest = list(current.iterator)
        if len(rest) > records_max:
            rest, later = rest[:records_max], rest[records_max:]
            state.start_delivery(current.fetch, later, start=later[0].offset)
        else:
            self._in_loop = None
        self._returned.append(state)
        return rest

    def next_slice(self, records_max: int) -> Slice | None:
        """Returns records of one partition for a loop, or the rest of its last slice."""
        current = self._slice()
        if current is not None and current.left:
            return current
        while (state := self._next()) is not None:
            start = state.next_offset
            fetch, records = self._decode(state, records_max)
            if records:
                self._in_loop = state
                return state.start_delivery(fetch, records, start=start)
            state.mark_consumed()
        return None

    def take_arrow(self, rows_max: int) -> list[tuple[TopicPartition, ArrowRecords]]:
        """Returns up to `rows_max` records as columns."""
        if self._in_loop is not None:
            self.stop(self._in_loop)
        taken: list[tuple[TopicPartition, ArrowRecords]] = []
        rows = 0
        while rows < rows_max and (state := self._next()) is not None:
            fetch = state.fetches[0]
            try:
                columns = fetch.records.take_arrow(rows_max - rows)
            except CorruptBatch as fault:
                if taken:
                    break
                raise _corrupt(state, fault) from fault
            if len(columns):
                taken.append((state.tp, columns))
                rows += len(columns)
            self._on_decoded(state, fetch)
            self._returned.append(state)
        self._decoded += rows
        return taken

    def _next(self) -> PartitionState | None:
        """Returns the partition whose turn it is."""
        ready = self._ready
        while ready:
            state = ready[0]
            if state.fetches and not state.is_paused and state.phase is Phase.READING:
                return state
            ready.popleft()
            state.is_ready = False
        return None

    def _decode(
        self, state: PartitionState, records_max: int
    ) -> tuple[CompletedFetch, list[ConsumedRecord]]:
        fetch = state.fetches[0]
        try:
            records = fetch.records.take(records_max)
        except CorruptBatch as fault:
            raise _corrupt(state, fault) from fault
        if self._key is not None or self._value is not None:
            records = self._deserialize(state, fetch, records)
        self._on_decoded(state, fetch)
        for interceptor in self._interceptors:
            records = _intercept(interceptor, records)
        self._decoded += len(records)
        return fetch, records

    def _on_decoded(self, state: PartitionState, fetch: CompletedFetch) -> None:
        state.on_decoded(fetch.records.next_offset, fetch.records.leader_epoch)
        if fetch.records.is_done:
            state.drop_fetch()
            self._ready.remove(state)  # the first, unless a callback let others in
            state.is_ready = False
            self.add(state)  # at the end: it is the next one's turn
            self._on_fetch_consumed()

    def _deserialize(
        self, state: PartitionState, fetch: CompletedFetch, records: list[ConsumedRecord]
    ) -> list[ConsumedRecord]:
        """Deserializes records up to the first bad one; raises if that is the very first."""
        made: list[ConsumedRecord] = []
        for record in records:
            part: Literal["key", "value"] = "key"
            try:
                key, value = record.key, record.value
                if key is not None and self._key is not None:
                    key = self._key(key)
                part = "value"
                if value is not None and self._value is not None:
                    value = self._value(value)
            except Exception as error:
                fetch.rewind(record.offset)
                if made:
                    break
                raise DeserializationFailed(
                    f"{state.tp}: the {part} of the record at offset {record.offset} cannot be "
                    f"deserialized: {error!r}; seek past it to continue",
                    topic=state.tp.topic,
                    partition=state.tp.partition,
                    offset=record.offset,
                    part=part,
                    record=record,
                ) from error
            made.append(record.with_content(key, value))
        return made


def _corrupt(state: PartitionState, fault: CorruptBatch) -> CorruptRecord:
    return CorruptRecord(
        f"{state.tp}: the batch at offset {state.next_offset} is corrupt ({fault}); seek past it "
        "to continue",
        topic=state.tp.topic,
        partition=state.tp.partition,
        offset=state.next_offset,
    )


def _intercept(interceptor: Any, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
    """Passes records through an interceptor, whose errors are logged and not raised."""
    on_consume = getattr(interceptor, "on_consume", None)
    if on_consume is None or not records:
        return records
    try:
        return list(on_consume(records))
    except Exception:
        _log.exception("the interceptor %r failed in on_consume", interceptor)
        return records


class Ledger:
    """The number of bytes of responses that are held in memory."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0


class Frame:
    """The bytes of one response. They are counted as a whole until the last fetch that uses a part
    of them is released."""

    __slots__ = ("_holders", "_ledger", "size")

    def __init__(self, ledger: Ledger, size: int) -> None:
        self.size = size
        self._ledger = ledger
        self._holders = 0

    def hold(self) -> None:
        if not self._holders:
            self._ledger.held += self.size
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        assert self._holders >= 0, "a frame was released twice"
        if not self._holders:
            self._ledger.held -= self.size


class CompletedFetch:
    """The data of one partition in one response, a view into its frame, read from the front."""

    __slots__ = ("_aborted", "_check_crc", "_data", "_frame", "_tp", "end_offset", "records")

    def __init__(
        self,
        data: Buffer,
        frame: Frame,
        tp: TopicPartition,
        *,
        from_offset: int,
        aborted: Sequence[tuple[int, int]] = (),
        check_crc: bool = True,
    ) -> None:
        self._data = memoryview(data)
        self._frame = frame
        self._tp = tp
        self._aborted = aborted
        self._check_crc = check_crc
        self.records = self._open(from_offset)
        self.end_offset = self.records.end_offset
        frame.hold()

    def __len__(self) -> int:
        return len(self._data)

    def _open(self, from_offset: int) -> FetchedRecords:
        return FetchedRecords(
            self._data,
            topic=self._tp.topic,
            partition=self._tp.partition,
            from_offset=from_offset,
            aborted=self._aborted,
            check_crc=self._check_crc,
        )

    def rewind(self, offset: int) -> None:
        """Continues at this offset: records decoded from there on were not returned."""
        self.records = self._open(offset)

    def release(self) -> None:
        self._frame.release()


class RecordIterator:
    """The iterator of `async for`.

    Not a generator: a generator ends for good when one of its calls is cancelled, and would then
    tell a user who asks again that there are no more records.
    """

    __slots__ = ("_began", "_next_slice", "_now", "_size", "_slice")

    def __init__(
        self, next_slice: Callable[[int], Awaitable[Slice | None]], now: Callable[[], float]
    ) -> None:
        self._next_slice = next_slice
        self._now = now
        self._slice: Slice | None = None
        self._began = 0.0
        self._size = _SLICE_RECORDS_MIN

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        current = self._slice
        if current is not None and not current.is_late:
            for record in current.iterator:
                return record
        while True:
            self._adapt_size()
            self._slice = current = await self._next_slice(self._size)
            if current is None:
                raise StopAsyncIteration
            self._began = self._now()
            for record in current.iterator:
                return record

    def _adapt_size(self) -> None:
        """Chooses the size of the next slice by the time that the last one took."""
        if self._slice is None:
            return
        elapsed = self._now() - self._began
        if elapsed < _SLICE_SECONDS:
            self._size = min(self._size * 2, _SLICE_RECORDS_MAX)
        elif elapsed > 2 * _SLICE_SECONDS:
            self._size = max(self._size // 2, 1)
