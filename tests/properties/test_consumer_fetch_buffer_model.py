"""A fetch buffer against a list: whatever is called, each record is returned once and in order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater import _core
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.fetch_buffer import CompletedFetch, FetchBuffer, Frame, Ledger
from headwater.client.consumer.subscription import PartitionState, Slice
from headwater.client.errors import DeserializationFailed
from headwater.model import TopicPartition

PARTITIONS = st.integers(0, 2)
BAD = b"bad"


def _read(value: bytes) -> bytes:
    if value == BAD:
        raise ValueError("bad")
    return value


class FetchBufferModel(RuleBasedStateMachine):
    """The log of each partition is a list of values; the model knows where its reader is."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        config = ConsumerConfig.build("localhost", value_deserializer=_read)
        self.buffer = FetchBuffer(config, on_fetch_consumed=lambda: None)
        self.states = [PartitionState(TopicPartition("t", number)) for number in range(3)]
        for state in self.states:
            state.seek(0)
        self.logs: list[list[bytes]] = [[], [], []]
        self.positions = [0, 0, 0]
        self.consumed = [0, 0, 0]
        self.loop: Slice | None = None

    # The log

    @rule(number=PARTITIONS, bad=st.lists(st.booleans(), min_size=1, max_size=6))
    def fetch(self, number: int, bad: list[bool]) -> None:
        """Fetches what the log has from the fetch offset on, after some records were written."""
        log, state = self.logs[number], self.states[number]
        log += [BAD if each else b"%d" % (len(log) + index) for index, each in enumerate(bad)]
        values = log[state.fetch_offset :]
        data = _core.encode(
            [(None, value, (), 1) for value in values], base_offset=state.fetch_offset
        )
        frame = Frame(self.ledger, len(data))
        state.add_fetch(CompletedFetch(data, frame, state.tp, from_offset=state.fetch_offset))
        self.buffer.add(state)

    # The user

    def _ask_for_more(self) -> None:
        self.buffer.mark_consumed()
        self.consumed = list(self.positions)

    def _take(self, records: list[Any]) -> None:
        for record in records:
            assert record.offset == self.positions[record.partition]
            assert record.value == self.logs[record.partition][record.offset]
            self.positions[record.partition] += 1

    def _skip(self, error: DeserializationFailed) -> None:
        number = error.partition
        assert error.offset == self.positions[number]
        assert self.logs[number][error.offset] == BAD
        self.buffer.skip(self.states[number], error.offset)
        self.positions[number] += 1
        self.consumed[number] = self.positions[number]

    @rule(records_max=st.integers(1, 8))
    def poll(self, records_max: int) -> None:
        self._ask_for_more()
        self.loop = None
        try:
            records = self.buffer.take(records_max)
        except DeserializationFailed as error:
            self._skip(error)
        else:
            assert len(records) <= records_max
            self._take(records)

    @rule(rows_max=st.integers(1, 8))
    def poll_arrow(self, rows_max: int) -> None:
        self._ask_for_more()
        self.loop = None
        for tp, columns in self.buffer.take_arrow(rows_max):
            self.positions[tp.partition] += len(columns)

    @rule(records_max=st.integers(1, 8))
    def next_slice(self, records_max: int) -> None:
        self._ask_for_more()
        try:
            self.loop = self.buffer.next_slice(records_max)
        except DeserializationFailed as error:
            self._skip(error)

    @precondition(lambda self: self.loop is not None)
    @rule()
    def next_record(self) -> None:
        assert self.loop is not None
        state = self.loop.state
        for record in self.loop.iterator:
            if state.delivery is self.loop:  # a second record means that the first is finished
                self.consumed[record.partition] = self.positions[record.partition]
            self._take([record])
            break

    @rule(number=PARTITIONS)
    def pause(self, number: int) -> None:
        self.states[number].is_paused = True
        self.buffer.stop(self.states[number])

    @rule(number=PARTITIONS)
    def resume(self, number: int) -> None:
        self.states[number].is_paused = False
        self.buffer.add(self.states[number])

    @rule(number=PARTITIONS, data=st.data())
    def seek(self, number: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.logs[number])))
        self.buffer.forget(self.states[number])
        self.states[number].seek(offset)
        self.positions[number] = self.consumed[number] = offset

    @rule(number=PARTITIONS)
    def evict(self, number: int) -> None:
        """Releases fetched data, as when memory is short or the leader changes."""
        self.states[number].evict()

    @invariant()
    def positions_agree(self) -> None:
        assert [state.position for state in self.states] == self.positions
        assert [state.consumed for state in self.states] == self.consumed

    @invariant()
    def memory_is_accounted_for(self) -> None:
        held = any(state.fetches for state in self.states)
        assert (self.ledger.held > 0) == held


FetchBufferModel.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestFetchBuffer = FetchBufferModel.TestCase
