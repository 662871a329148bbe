"""Records on their way to the user, and what counts as consumed; without a broker."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headwater import _core
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.arrow import table
from headwater.client.consumer.fetch_buffer import CompletedFetch, FetchBuffer, Frame, Ledger
from headwater.client.consumer.subscription import PartitionState
from headwater.client.errors import CorruptRecord, DeserializationFailed, InvalidRecord
from headwater.model import TopicPartition


class Setup:
    """A consumer's inside with partitions that have something."""

    def __init__(self, **settings: Any) -> None:
        self.fetches_consumed = 0
        self.ledger = Ledger()
        config = ConsumerConfig.build("localhost", **settings)
        self.buffer = FetchBuffer(config, on_fetch_consumed=self._on_fetch_consumed)

    def _on_fetch_consumed(self) -> None:
        self.fetches_consumed += 1

    def partition(self, index: int, *counts: int) -> PartitionState:
        """At 0, with a fetched piece for each count."""
        state = PartitionState(TopicPartition("t", index))
        state.seek(0)
        for count in counts:
            self.fetched(
                state,
                _core.encode(
                    [(None, b"%d" % number, (), 1) for number in range(count)],
                    base_offset=state.fetch_offset,
                    leader_epoch=5,
                ),
            )
        return state

    def fetched(self, state: PartitionState, data: bytes) -> None:
        frame = Frame(self.ledger, len(data))
        state.add_fetch(CompletedFetch(data, frame, state.tp, from_offset=state.fetch_offset))
        self.buffer.add(state)


def offsets(records: list[_core.ConsumedRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def test_polling_takes_from_partitions_in_turn() -> None:
    setup = Setup()
    zero, one = setup.partition(0, 2, 2), setup.partition(1, 3)
    buffer = setup.buffer
    assert offsets(buffer.take(3)) == [(0, 0), (0, 1), (1, 0)]
    assert offsets(buffer.take(9)) == [(1, 1), (1, 2), (0, 2), (0, 3)]
    assert buffer.take(9) == []
    assert (zero.position, one.position) == (4, 3)
    assert setup.fetches_consumed == 3
    assert setup.ledger.held == 0
    assert buffer.records_returned == 7


def test_polled_records_are_consumed_at_the_next_poll() -> None:
    setup = Setup()
    state = setup.partition(0, 4)
    buffer = setup.buffer
    buffer.mark_consumed()
    buffer.take(3)
    assert (state.position, state.consumed) == (3, 0)
    buffer.mark_consumed()
    assert (state.position, state.consumed) == (3, 3)


def test_in_a_loop_the_current_record_is_not_consumed() -> None:
    setup = Setup()
    state = setup.partition(0, 3)
    buffer = setup.buffer
    current = buffer.next_slice(9)
    assert current is not None
    assert (state.position, state.consumed) == (0, 0)
    seen = [(record.offset, state.position, state.consumed) for record in current.iterator]
    assert seen == [(0, 1, 0), (1, 2, 1), (2, 3, 2)]
    buffer.mark_consumed()
    assert (state.position, state.consumed) == (3, 3)
    assert state.position_epoch == 5


def test_a_loop_that_was_left_is_continued_by_the_next_loop_and_by_poll() -> None:
    setup = Setup()
    state = setup.partition(0, 6)
    buffer = setup.buffer
    current = buffer.next_slice(9)
    assert current is not None
    assert [next(current.iterator).offset, next(current.iterator).offset] == [0, 1]
    buffer.mark_consumed()
    assert state.consumed == 2
    again = buffer.next_slice(9)
    assert again is current
    assert next(again.iterator).offset == 2
    buffer.mark_consumed()
    assert offsets(buffer.take(2)) == [(0, 3), (0, 4)]
    assert (state.position, state.consumed) == (5, 3)
    buffer.mark_consumed()
    assert (state.position, state.consumed) == (5, 5)
    assert offsets(buffer.take(2)) == [(0, 5)]
    assert buffer.records_returned == 6


def test_a_pause_inside_a_loop_ends_the_slice_and_loses_nothing() -> None:
    setup = Setup()
    state, other = setup.partition(0, 4, 1), setup.partition(1, 1)
    buffer = setup.buffer
    current = buffer.next_slice(9)
    assert current is not None
    seen = []
    for record in current.iterator:
        seen.append(record.offset)
        if record.offset == 1:
            state.is_paused = True
            buffer.stop(state)
    assert seen == [0, 1]
    assert (state.position, state.consumed) == (2, 1)
    buffer.mark_consumed()
    assert state.consumed == 2
    assert offsets(buffer.take(9)) == [(1, 0)]
    assert other.position == 1
    # The piece was used up when the slice was made: it has to be fetched again.
    assert (state.fetch_offset, state.position) == (2, 2)


def test_records_that_were_taken_back_are_fetched_again_at_once() -> None:
    setup = Setup()
    state = setup.partition(0, 4)
    buffer = setup.buffer
    current = buffer.next_slice(9)
    assert current is not None
    next(current.iterator)
    before = setup.fetches_consumed
    assert buffer.take_arrow(9) == []
    assert state.fetch_offset == 1
    assert setup.fetches_consumed > before


def test_a_pause_in_the_middle_of_a_fetch_keeps_the_rest_of_it() -> None:
    setup = Setup()
    state = setup.partition(0, 9)
    buffer = setup.buffer
    current = buffer.next_slice(4)
    assert current is not None
    next(current.iterator)
    buffer.stop(state)
    assert list(current.iterator) == []
    assert offsets(buffer.take(99)) == [(0, offset) for offset in range(1, 9)]


def test_a_seek_inside_a_loop_ends_the_slice() -> None:
    setup = Setup()
    state = setup.partition(0, 4)
    buffer = setup.buffer
    current = buffer.next_slice(9)
    assert current is not None
    for record in current.iterator:
        assert record.offset == 0
        buffer.forget(state)
        state.seek(100)
    assert state.position == 100
    buffer.mark_consumed()
    assert state.consumed == 100


def test_no_record_of_a_paused_partition_is_returned() -> None:
    setup = Setup()
    state = setup.partition(0, 2)
    state.is_paused = True
    assert setup.buffer.take(9) == []
    assert setup.buffer.next_slice(9) is None
    state.is_paused = False
    setup.buffer.add(state)
    assert len(setup.buffer.take(9)) == 2


def test_columns_end_at_the_bound_and_positions_move_exactly() -> None:
    setup = Setup()
    zero, one = setup.partition(0, 5), setup.partition(1, 5)
    buffer = setup.buffer
    first = table(buffer.take_arrow(7))
    assert first.column_names == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
    ]
    assert first.num_rows == 7
    assert (zero.position, one.position) == (5, 2)
    assert offsets(buffer.take(2)) == [(1, 2), (1, 3)]
    rest = table(buffer.take_arrow(7))
    assert rest.to_pydict()["offset"] == [4]
    assert rest.to_pydict()["topic"] == ["t"]
    assert table(buffer.take_arrow(7)).num_rows == 0


def test_columns_begin_where_a_loop_was_left() -> None:
    setup = Setup()
    setup.partition(0, 5)
    current = setup.buffer.next_slice(2)
    assert current is not None
    next(current.iterator)
    assert table(setup.buffer.take_arrow(9)).to_pydict()["offset"] == [1, 2, 3, 4]
    assert list(current.iterator) == []


def test_a_position_moves_past_control_batches() -> None:
    setup = Setup()
    state = setup.partition(0, 1)
    setup.fetched(
        state,
        _core.encode(
            [(b"\0\0\0\1", b"\0" * 6, (), 1)],
            base_offset=1,
            producer_id=1,
            transactional=True,
            control=True,
        ),
    )
    assert offsets(setup.buffer.take(9)) == [(0, 0)]
    assert state.position == 2


def test_control_batches_are_consumed_at_the_next_poll() -> None:
    setup = Setup()
    state = setup.partition(0)
    marker = [(b"\0\0\0\1", b"\0" * 6, (), 1)]
    options: Any = {"producer_id": 1, "transactional": True, "control": True}
    setup.fetched(state, _core.encode(marker, **options))
    assert setup.buffer.take(9) == []
    setup.buffer.mark_consumed()
    assert state.consumed == 1


def test_a_corrupt_batch_is_an_error_with_its_place_at_every_poll() -> None:
    setup = Setup()
    state = setup.partition(0, 2)
    bad = bytearray(_core.encode([(None, b"c", (), 1)], base_offset=2))
    bad[-2] ^= 1
    setup.fetched(state, bytes(bad))
    assert len(setup.buffer.take(9)) == 2
    for _ in range(2):
        with pytest.raises(CorruptRecord, match=r"t-0.*offset 2 is corrupt \(crc") as raised:
            setup.buffer.take(9)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 0, 2)
    with pytest.raises(InvalidRecord):
        setup.buffer.next_slice(9)
    with pytest.raises(InvalidRecord):
        setup.buffer.take_arrow(9)


# What the user puts in between


def test_deserializers_make_keys_and_values() -> None:
    setup = Setup(value_deserializer=int)
    setup.partition(0, 3)
    assert [record.value for record in setup.buffer.take(9)] == [0, 1, 2]


def test_records_before_one_that_cannot_be_deserialized_are_returned() -> None:
    def read(value: bytes) -> int:
        if value == b"2":
            raise ValueError("two")
        return int(value)

    setup = Setup(value_deserializer=read)
    state = setup.partition(0, 4)
    assert [record.value for record in setup.buffer.take(9)] == [0, 1]
    for _ in range(2):
        with pytest.raises(DeserializationFailed, match=r"t-0.*offset 2.*two.*seek past"):
            setup.buffer.take(9)
        assert state.position == 2
    setup.buffer.forget(state)
    state.seek(3)
    setup.fetched(state, _core.encode([(None, b"3", (), 1)], base_offset=3))
    assert [record.value for record in setup.buffer.take(9)] == [3]


def test_interceptors_see_records_and_their_errors_are_their_own() -> None:
    class Half:
        def on_consume(self, records: list[_core.ConsumedRecord]) -> list[_core.ConsumedRecord]:
            return records[::2]

    class Broken:
        def on_consume(self, records: list[_core.ConsumedRecord]) -> None:
            raise RuntimeError("mine")

    setup = Setup(interceptors=[Half(), Broken()])
    state = setup.partition(0, 4)
    assert offsets(setup.buffer.take(9)) == [(0, 0), (0, 2)]
    assert state.position == 4


def test_a_table_of_many_rows_names_the_topic_in_each() -> None:
    batch = _core.encode([(None, b"x", (), 1)] * 20_000)
    columns = _core.FetchedRecords(batch, topic="t", partition=3).take_arrow(20_000)
    few = _core.FetchedRecords(batch, topic="t", partition=3).take_arrow(2)
    made = table([(TopicPartition("t", 3), columns), (TopicPartition("t", 3), few)])
    assert made.num_rows == 20_002
    assert made.column("topic").unique().to_pylist() == ["t"]
    assert made.column("partition").unique().to_pylist() == [3]


def test_records_are_counted_when_they_are_returned() -> None:
    setup = Setup()
    state = setup.partition(0, 6)
    buffer = setup.buffer
    current = buffer.next_slice(9)
    assert current is not None
    assert buffer.records_returned == 0
    next(current.iterator)
    next(current.iterator)
    assert buffer.records_returned == 2
    buffer.forget(state)  # the user seeks
    assert buffer.records_returned == 2


def test_a_first_table_does_not_load_pandas() -> None:
    program = (
        "import sys; from headwater import _core, TopicPartition\n"
        "from headwater.client.consumer.arrow import table\n"
        "data = _core.encode([(None, b'v', (), 1)])\n"
        "columns = _core.FetchedRecords(data, topic='t', partition=0).take_arrow(9)\n"
        "made = table([(TopicPartition('t\\u00e4', 0), columns)])\n"
        "print(made.column('topic')[0], 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "tä False\n", done.stderr
