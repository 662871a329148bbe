"""Fetched bytes in slices: however they are cut, a reader sees what the plain twin sees."""

from __future__ import annotations

import copy
import pickle
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import _core
from tests.reference import batches as twin
from tests.reference.consumed import Row, visible
from tests.reference.strategies import CODEC, RECORDS

ABORT, COMMIT = 0, 1
PRODUCER = st.integers(-1, 2)
STEP = st.tuples(RECORDS, CODEC, PRODUCER, st.integers(0, 3), st.booleans())
MARKER = st.tuples(st.integers(0, 2), st.sampled_from([ABORT, COMMIT]))


def marker(base_offset: int, *, producer_id: int, kind: int) -> bytes:
    record = (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), (), 1)
    return _core.encode(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        transactional=True,
        control=True,
    )


def history(steps: list[Any]) -> tuple[bytes, list[tuple[int, int]], int]:
    """The bytes of a log, the transactions in it that were aborted, and where it ends."""
    data, end = b"", 0
    first: dict[int, int] = {}
    aborted = []
    for step in steps:
        if len(step) == 2:
            producer_id, kind = step
            data += marker(end, producer_id=producer_id, kind=kind)
            if kind == ABORT and producer_id in first:
                aborted.append((producer_id, first[producer_id]))
            first.pop(producer_id, None)
            end += 1
            continue
        records, codec, producer_id, gap, broker_time = step
        end += gap  # compaction leaves gaps
        data += _core.encode(
            records,
            codec=codec,
            base_offset=end,
            leader_epoch=gap,
            producer_id=producer_id,
            transactional=producer_id >= 0,
            log_append_time=77 if broker_time else None,
        )
        if producer_id >= 0:
            first.setdefault(producer_id, end)
        end += len(records)
    return data, aborted, end


def row(record: _core.ConsumedRecord) -> Row:
    return (
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )


def column_rows(columns: _core.ArrowRecords) -> list[tuple[Any, ...]]:
    """Offset, timestamp, key, value and headers of every row."""
    batch = pa.record_batch(columns)
    batch.validate(full=True)  # the core leaves that out
    assert batch.column("partition").to_pylist() in ([3] * len(batch), [0] * len(batch))
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [
        tuple((each["key"], each["value"]) for each in row)
        for row in batch.column("headers").to_pylist()
    ]
    offsets, keys, values = (batch.column(each).to_pylist() for each in ("offset", "key", "value"))
    milliseconds = [time // 1000 for time in times]
    return list(zip(offsets, milliseconds, keys, values, headers, strict=True))


HISTORY = st.lists(STEP | MARKER, max_size=5)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(HISTORY, SIZES, st.integers(0, 40), st.integers(0, 30))
def test_slices_of_any_size_are_what_a_reader_may_see(
    steps: list[Any], sizes: list[int], from_offset: int, cut: int
) -> None:
    data, aborted, _ = history(steps)
    data = data[: len(data) - cut]
    expected, end = visible(data, from_offset=from_offset, aborted=aborted)
    fetched = _core.FetchedRecords(
        data, topic="t", partition=3, from_offset=from_offset, aborted=aborted
    )
    assert fetched.end_offset == end
    found: list[Row] = []
    turn = 0
    while not fetched.is_done:
        slice_ = fetched.take(sizes[turn % len(sizes)])
        assert len(slice_) <= sizes[turn % len(sizes)]
        assert all((record.topic, record.partition) == ("t", 3) for record in slice_)
        if slice_:
            assert slice_[-1].offset < fetched.next_offset
        found += map(row, slice_)
        turn += 1
    assert found == expected
    assert fetched.next_offset == end


@given(HISTORY, SIZES, st.integers(0, 40))
def test_columns_and_records_may_take_turns(
    steps: list[Any], sizes: list[int], from_offset: int
) -> None:
    data, aborted, _ = history(steps)
    expected, end = visible(data, from_offset=from_offset, aborted=aborted)
    fetched = _core.FetchedRecords(
        data, topic="t", partition=3, from_offset=from_offset, aborted=aborted
    )
    found: list[tuple[int, bytes | None]] = []
    turn = 0
    while not fetched.is_done:
        size = sizes[turn % len(sizes)]
        turn += 1
        if turn % 2:
            found += [(record.offset, record.value) for record in fetched.take(size)]
            continue
        rows = column_rows(fetched.take_arrow(size))
        assert len(rows) <= size
        found += [(offset, value) for offset, _, _, value, _ in rows]
    assert found == [(offset, value) for offset, _, _, _, value, _, _ in expected]
    assert fetched.next_offset == end


PLAIN = st.tuples(st.none() | st.just(b"key"), st.none() | st.just(b"value"), st.just(()))
ODD = st.tuples(
    st.sampled_from([None, b"", b"k" * 200]),
    st.sampled_from([None, b"", b"v" * 9_000, b"v" * 70_000]),
    st.sampled_from([(), (("name", b"x"),), (("name", None), ("", b""))]),
)


@given(
    st.lists(st.tuples(st.integers(0, 60), PLAIN, ODD), min_size=1, max_size=6),
    CODEC,
    st.lists(st.integers(1, 90), min_size=1, max_size=3),
    st.integers(0, 120),
    st.booleans(),
)
def test_columns_of_many_records_that_are_alike_with_some_that_are_not(
    runs: list[Any], codec: int, sizes: list[int], from_offset: int, broker_time: bool
) -> None:
    alike = [
        (*content, number * 40_000)
        for length, plain, odd in runs
        for number, content in enumerate([plain] * length + [odd])
    ]
    data = _core.encode(alike, codec=codec, log_append_time=77 if broker_time else None)
    expected, end = visible(data, from_offset=from_offset, aborted=())
    fetched = _core.FetchedRecords(data, topic="t", partition=3, from_offset=from_offset)
    found: list[Any] = []
    while not fetched.is_done:
        found += column_rows(fetched.take_arrow(sizes[len(found) % len(sizes)]))
    wanted = [
        (offset, time, key, value, headers) for offset, time, _, key, value, headers, _ in expected
    ]
    assert found == wanted
    assert fetched.next_offset == end
    assert column_rows(_core.decode_arrow(data, from_offset=from_offset)) == wanted
    some = [each for each in wanted if each[0] < 50]
    assert column_rows(_core.decode_arrow(data, from_offset=from_offset, to_offset=50)) == some


def test_what_comes_before_a_corrupt_batch_is_given_first() -> None:
    good = _core.encode([(None, b"a", (), 1), (None, b"b", (), 1)])
    bad = bytearray(_core.encode([(None, b"c", (), 1)], base_offset=2))
    bad[-2] ^= 1  # the value's only byte
    for take in ("take", "take_arrow"):
        fetched = _core.FetchedRecords(good + bad, topic="t", partition=0)
        assert len(getattr(fetched, take)(9)) == 2
        for _ in range(2):
            with pytest.raises(_core.CorruptBatch, match="crc") as refused:
                getattr(fetched, take)(9)
            assert refused.value.position == len(good)
        assert fetched.next_offset == 2
    fetched = _core.FetchedRecords(good + bad, topic="t", partition=0, check_crc=False)
    assert len(fetched.take(9)) == 3


def test_a_record_that_is_cut_inside_a_batch_is_found_where_it_stands() -> None:
    batch, _ = twin.whole(_core.encode([(None, b"a", (), 1)] * 2), 0)
    payload = _core.encode([(None, b"a", (), 1)] * 2)[twin.HEADER_BYTES :]
    data = twin.sealed(batch, payload[:-1])
    fetched = _core.FetchedRecords(data, topic="t", partition=0)
    assert [record.offset for record in fetched.take(9)] == [0]
    with pytest.raises(_core.CorruptBatch, match="record length"):
        fetched.take(9)
    assert fetched.next_offset == 1


def test_a_bomb_is_refused_before_its_memory_is_taken() -> None:
    data = _core.encode([(None, bytes(1 << 20), (), 1)], codec=4)
    fetched = _core.FetchedRecords(data, topic="t", partition=0, output_bytes_max=1 << 16)
    with pytest.raises(_core.OutputTooLarge):
        fetched.take(1)


def test_a_consumed_record_is_a_plain_value() -> None:
    data = _core.encode([(b"k", b"v", [("h", b"1")], 7)], leader_epoch=4)
    (record,) = _core.FetchedRecords(data, topic="t", partition=2).take(5)
    assert record == _core.ConsumedRecord("t", 2, 0, 7, 0, b"k", b"v", (("h", b"1"),), 4)
    assert pickle.loads(pickle.dumps(record)) == record == copy.copy(record)
    assert hash(record) == hash(copy.copy(record))
    assert record != record.with_content(None, b"v")
    assert record.with_content(1, {"a": 2}).value == {"a": 2}
    assert "topic='t', partition=2, offset=0" in repr(record)
