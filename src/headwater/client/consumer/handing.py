"""Handing records out: from what was fetched, in turn from all partitions, in the user's form.

What the user got last counts as being processed until it asks for more. `settle` is that moment.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from headwater._core import ArrowRecords, ConsumedRecord, CorruptBatch
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.fetched import Piece
from headwater.client.consumer.partition import PartitionState, Phase
from headwater.client.consumer.slices import Slice
from headwater.client.errors import CorruptRecord, DeserializationFailed, InvalidRecord
from headwater.model import TopicPartition

_log = logging.getLogger("headwater.client")

Deserialize = Callable[[Any], Any]


class Handing:
    def __init__(self, config: ConsumerConfig, *, drained: Callable[[], None]) -> None:
        self.current: Slice | None = None  # what a loop over the consumer is in
        self._decoded = 0
        self._drained = drained  # a fetched piece is used up: there is room for more
        self._key = config.key_deserializer
        self._value = config.value_deserializer
        self._interceptors = config.interceptors
        self._ready: deque[PartitionState] = deque()
        self._unsettled: list[PartitionState] = []

    def arrived(self, state: PartitionState) -> None:
        """The partition may have something to hand out."""
        if state.pieces and not state.is_queued:
            state.is_queued = True
            self._ready.append(state)

    @property
    def records(self) -> int:
        """How many were handed out, for metrics: not those that a loop has still before it."""
        return self._decoded - (self.current.left if self.current is not None else 0)

    # Where the user is

    def position(self, state: PartitionState) -> int:
        current = self.current
        if current is not None and current.state is state:
            return current.position
        return state.position

    def done(self, state: PartitionState) -> int:
        current = self.current
        if current is not None and current.state is state:
            return current.done
        return state.done

    def epoch(self, state: PartitionState) -> int:
        """The leader epoch of the record before the position, -1 if that is not known."""
        current = self.current
        if current is not None and current.state is state:
            return current.epoch
        return state.epoch

    def settle(self) -> None:
        """The user asks for more: it is done with all it has got."""
        current = self.current
        if current is not None:
            current.settle()
            if not current.left:
                current.state.done = current.position
                self.current = None
        for state in self._unsettled:
            if self.current is None or self.current.state is not state:
                state.done = state.position
        self._unsettled.clear()

    def stop(self, state: PartitionState) -> None:
        """Hands out no more of what was decoded of this partition; it is read again later."""
        current = self.current
        if current is None or current.state is not state:
            return
        position, done = current.position, current.done
        self._decoded -= current.left
        self.current = None
        current.cut()
        state.give_back(current.piece, position)
        state.done = done
        self._unsettled.append(state)
        self._drained()  # what was given back may have to be fetched again

    def forget(self, state: PartitionState) -> None:
        """The partition is gone, or read from elsewhere: nothing of it is handed out."""
        if self.current is not None and self.current.state is state:
            self._decoded -= self.current.left
            self.current.cut()
            self.current = None
        if state in self._unsettled:
            self._unsettled.remove(state)

    def skip(self, state: PartitionState, offset: int) -> None:
        """Moves past the record at this offset, which is the next one and cannot be read."""
        piece = state.pieces[0]
        piece.rewind(offset + 1)
        self._passed(state, piece)
        state.done = state.position

    # Handing out

    def take(self, records_max: int) -> list[ConsumedRecord]:
        """Up to so many records of any partition, all of which the user gets now."""
        taken: list[ConsumedRecord] = self._rest(records_max)
        while len(taken) < records_max and (state := self._next()) is not None:
            try:
                _, records = self._decode(state, records_max - len(taken))
            except InvalidRecord:
                if taken:
                    break  # the next call finds it again
                raise
            if records:
                taken = taken + records if taken else records
            self._unsettled.append(state)  # also where nothing was for the user: it is passed
        return taken

    def _rest(self, records_max: int) -> list[ConsumedRecord]:
        """What a loop left of its slice, or the first part of it."""
        current = self.current
        if current is None:
            return []
        state, done = current.state, current.done
        rest = list(current.iterator)
        self.current = None
        if len(rest) > records_max:
            rest, later = rest[:records_max], rest[records_max:]
            self.current = Slice(state, current.piece, later, start=later[0].offset, done=done)
        state.done = done
        self._unsettled.append(state)
        return rest

    def slice(self, records_max: int) -> Slice | None:
        """What a loop runs over next: records of one partition, or the rest of the last slice."""
        current = self.current
        if current is not None and current.left:
            return current
        while (state := self._next()) is not None:
            start = state.position
            piece, records = self._decode(state, records_max)
            if records:
                self.current = Slice(state, piece, records, start=start, done=state.done)
                return self.current
            state.done = state.position
        return None

    def take_arrow(self, rows_max: int) -> list[tuple[TopicPartition, ArrowRecords]]:
        """Up to so many records as columns."""
        if self.current is not None:
            self.stop(self.current.state)
        taken: list[tuple[TopicPartition, ArrowRecords]] = []
        rows = 0
        while rows < rows_max and (state := self._next()) is not None:
            piece = state.pieces[0]
            try:
                columns = piece.records.take_arrow(rows_max - rows)
            except CorruptBatch as fault:
                if taken:
                    break
                raise _corrupt(state, fault) from fault
            if len(columns):
                taken.append((state.tp, columns))
                rows += len(columns)
            self._passed(state, piece)
            self._unsettled.append(state)
        self._decoded += rows
        return taken

    def _next(self) -> PartitionState | None:
        """The partition whose turn it is."""
        ready = self._ready
        while ready:
            state = ready[0]
            if state.pieces and not state.is_paused and state.phase is Phase.READING:
                return state
            ready.popleft()
            state.is_queued = False
        return None

    def _decode(
        self, state: PartitionState, records_max: int
    ) -> tuple[Piece, list[ConsumedRecord]]:
        piece = state.pieces[0]
        try:
            records = piece.records.take(records_max)
        except CorruptBatch as fault:
            raise _corrupt(state, fault) from fault
        if self._key is not None or self._value is not None:
            records = self._deserialized(state, piece, records)
        self._passed(state, piece)
        for interceptor in self._interceptors:
            records = _intercepted(interceptor, records)
        self._decoded += len(records)
        return piece, records

    def _passed(self, state: PartitionState, piece: Piece) -> None:
        """So much of the piece is decoded."""
        state.position = piece.records.next_offset
        if piece.records.leader_epoch >= 0:
            state.epoch = piece.records.leader_epoch
        if piece.records.is_done:
            state.drop_piece()
            self._ready.remove(state)  # the first, unless a callback has let others go ahead
            state.is_queued = False
            self.arrived(state)
            self._drained()

    def _deserialized(
        self, state: PartitionState, piece: Piece, records: list[ConsumedRecord]
    ) -> list[ConsumedRecord]:
        """The same with the user's objects; up to the first that cannot be read, unless it is the
        very first."""
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
                piece.rewind(record.offset)
                if made:
                    break
                raise DeserializationFailed(
                    f"{state.tp}: the {part} of the record at offset {record.offset} cannot be "
                    f"deserialized: {error!r}; seek past it to go on",
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
        f"{state.tp}: the batch at offset {state.position} is corrupt ({fault}); seek past it to "
        "go on",
        topic=state.tp.topic,
        partition=state.tp.partition,
        offset=state.position,
    )


def _intercepted(interceptor: Any, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
    """What an interceptor makes of it; its errors are its own."""
    on_consume = getattr(interceptor, "on_consume", None)
    if on_consume is None or not records:
        return records
    try:
        return list(on_consume(records))
    except Exception:
        _log.exception("the interceptor %r failed in on_consume", interceptor)
        return records
