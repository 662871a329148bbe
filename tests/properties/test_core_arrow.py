"""Records as Arrow columns: the same rows as `decode`, less what a committed reader must skip."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import _core
from tests.reference import batches as twin
from tests.reference.strategies import CODEC, RECORDS

ABORT, COMMIT = 0, 1


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    batch = pa.record_batch(_core.decode_arrow(data, **options))
    batch.validate(full=True)
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    return pa.RecordBatch.from_pydict(columns).to_pylist()  # type: ignore[no-any-return]


def offsets(data: bytes, **options: Any) -> list[int]:
    return [row["offset"] for row in rows(data, **options)]


def written(base_offset: int, *, producer_id: int = -1, count: int = 1) -> bytes:
    records = [(None, b"v", (), 1)] * count
    transactional = producer_id >= 0
    return _core.encode(
        records, base_offset=base_offset, producer_id=producer_id, transactional=transactional
    )


def marker(base_offset: int, *, producer_id: int, kind: int) -> bytes:
    record = (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), (), 1)
    return _core.encode(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        transactional=True,
        control=True,
    )


def test_the_columns_have_the_types_that_spark_asks_for() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    expected = pa.schema(
        [
            ("offset", pa.int64()),
            ("partition", pa.int32()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.field("element", header))),
        ]
    )
    assert pa.record_batch(_core.decode_arrow(b"")).schema.equals(expected)
    assert pa.schema(_core.decode_arrow(b"")).equals(expected)


@given(st.lists(st.tuples(RECORDS, CODEC), max_size=3), st.integers(0, 30), st.integers(0, 30))
def test_the_rows_are_the_records(
    parts: list[tuple[list[twin.Record], int]], from_offset: int, to_offset: int
) -> None:
    data, end = b"", 0
    for records, codec in parts:
        data += _core.encode(records, codec=codec, base_offset=end)
        end += len(records)
    expected = [
        {
            "offset": record.offset,
            "partition": 4,
            "timestamp": max(-(2**63), min(record.timestamp * 1000, 2**63 - 1)),
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for record in _core.decode(data, from_offset=from_offset)
        if record.offset < to_offset
    ]
    options = {"partition": 4, "from_offset": from_offset, "to_offset": to_offset}
    assert rows(data, **options) == expected


def test_the_next_offset_passes_what_was_left_out() -> None:
    data = written(0) + marker(1, producer_id=1, kind=COMMIT)
    assert _core.decode_arrow(data).next_offset == 2
    assert _core.decode_arrow(written(0, count=10), to_offset=4).next_offset == 4
    assert _core.decode_arrow(b"", from_offset=7).next_offset == 7


def test_an_aborted_transaction_is_hidden_until_its_marker() -> None:
    data = b"".join(
        [
            written(0, producer_id=1),
            written(1, producer_id=2),
            written(2),
            marker(3, producer_id=1, kind=ABORT),
            written(4, producer_id=1),
            marker(5, producer_id=2, kind=COMMIT),
            marker(6, producer_id=1, kind=COMMIT),
        ]
    )
    assert offsets(data) == [0, 1, 2, 4]
    assert offsets(data, aborted=[(1, 0)]) == [1, 2, 4]


def test_two_aborted_transactions_of_one_producer_are_hidden() -> None:
    data = b"".join(
        [
            written(0, producer_id=1),
            marker(1, producer_id=1, kind=ABORT),
            written(2, producer_id=1),
            marker(3, producer_id=1, kind=COMMIT),
            written(4, producer_id=1),
            marker(5, producer_id=1, kind=ABORT),
        ]
    )
    assert offsets(data, aborted=[(1, 4), (1, 0)]) == [2]


def test_an_aborted_transaction_that_began_earlier_is_hidden_from_the_start() -> None:
    data = written(10, producer_id=1) + marker(11, producer_id=1, kind=ABORT) + written(12)
    assert offsets(data, from_offset=10, aborted=[(1, 3)]) == [12]


def test_the_columns_outlive_the_bytes_they_came_from() -> None:
    data = bytearray(written(0, count=3))
    columns = _core.decode_arrow(data)
    data[:] = bytes(len(data))
    first, second = pa.record_batch(columns), pa.record_batch(columns)
    del columns
    assert first.equals(second)
    assert first.column("value").to_pylist() == [b"v"] * 3


def test_a_broken_batch_is_refused() -> None:
    data = bytearray(written(0))
    data[-1] ^= 1
    with pytest.raises(_core.CorruptBatch, match="crc"):
        _core.decode_arrow(data)
