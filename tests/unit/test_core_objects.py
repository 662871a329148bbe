"""Behaviour of the core's functions and objects as Python sees it."""

from __future__ import annotations

import mmap
import pickle
import tempfile
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater import _core

RECORDS = [(b"k", b"v", [("h", b"1"), ("n", None)], 7), (None, None, (), 9)]
BATCH = _core.encode(RECORDS)


def test_any_contiguous_buffer_will_do() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b".." + BATCH)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert _core.validate(mapped, position=2).count == 2
    for buffer in (BATCH, bytearray(BATCH), memoryview(BATCH), memoryview(b"." + BATCH)[1:]):
        assert _core.validate(buffer).count == 2
        assert len(_core.decode(buffer)) == 2
        assert _core.scan(buffer)[1:] == (len(BATCH), None)


def test_a_buffer_with_gaps_is_refused() -> None:
    with pytest.raises(BufferError):
        _core.validate(memoryview(BATCH)[::2])
    with pytest.raises(TypeError):
        _core.validate(cast(Any, "text"))


def test_restamp_needs_a_writable_buffer() -> None:
    with pytest.raises(TypeError, match="writable"):
        _core.restamp(BATCH, base_offset=1, leader_epoch=1)


def test_a_buffer_is_released_when_the_call_is_over() -> None:
    data = bytearray(BATCH)
    _core.restamp(data, base_offset=1, leader_epoch=1)
    _core.decode(data)
    _core.decode_arrow(data)
    data.append(0)  # a bytearray with a view on it cannot grow


def test_a_fault_has_a_reason_and_a_place_and_survives_pickling() -> None:
    with pytest.raises(_core.CorruptBatch) as refused:
        _core.validate(BATCH[:-1])
    fault = pickle.loads(pickle.dumps(refused.value))
    assert (fault.reason, fault.position, str(fault)) == ("truncated", 0, "truncated at byte 0")
    assert _core.OutputTooLarge.__mro__[1:3] == (_core.CorruptBatch, ValueError)


def test_a_record_is_a_plain_value() -> None:
    first, second = _core.decode(BATCH)
    assert first == _core.decode(BATCH)[0]
    assert first != second
    assert first != cast(Any, (0, 7, b"k", b"v", ()))
    assert len({first, second, *_core.decode(BATCH)}) == 2
    assert repr(second) == "Record(offset=1, timestamp=9, key=None, value=None, headers=())"
    with pytest.raises(AttributeError):
        cast(Any, first).offset = 3


def test_keys_and_values_may_be_any_buffer() -> None:
    record = (bytearray(b"k"), memoryview(b"v"), [("h", bytearray(b"1")), ("n", None)], 7)
    assert _core.encode([record, RECORDS[1]]) == BATCH
    assert _core.encode((record, RECORDS[1])) == BATCH


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(b"k", b"v", ())],
        [(b"k", "v", (), 1)],
        [(b"k", b"v", None, 1)],
        [(b"k", b"v", (), None)],
        [(b"k", b"v", (), 2**63)],
        [(b"k", b"v", [(b"h", b"")], 1)],
        [(b"k", b"v", [("h",)], 1)],
        [(b"k", b"v", [("\ud800", b"")], 1)],
        [None],
        None,
    ],
)
def test_what_is_no_record_is_an_error_and_not_a_batch(records: Any) -> None:
    with pytest.raises((TypeError, ValueError, IndexError, OverflowError)):
        _core.encode(records)


@pytest.mark.parametrize("deltas", [[0], [1, 1], [-1, 0], [1, 0], [0, 1, 2]])
def test_offset_deltas_must_fit_the_records(deltas: list[int]) -> None:
    with pytest.raises(ValueError, match="offset_deltas"):
        _core.encode(RECORDS, offset_deltas=deltas)


@pytest.mark.parametrize(("codec", "level"), [(1, 10), (3, 0), (3, 18), (4, 23), (5, None)])
def test_codecs_and_levels_out_of_range_are_errors(codec: int, level: int | None) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        _core.encode(RECORDS, codec=codec, level=level)
    with pytest.raises(ValueError):  # noqa: PT011
        _core.compress(codec, b"", level)


def test_decompressing_an_unknown_codec_is_an_error() -> None:
    with pytest.raises(ValueError, match="codec 5"):
        _core.decompress(5, b"", 1)


def test_scan_can_stop_early_and_leave_the_checksum() -> None:
    broken = bytearray(BATCH * 3)
    broken[len(BATCH) + 70] ^= 1
    batches, end, reason = _core.scan(broken)
    assert (len(batches), end, reason) == (1, len(BATCH), "crc")
    assert len(_core.scan(broken, check_crc=False)[0]) == 3
    batches, end, reason = _core.scan(BATCH * 3, position=len(BATCH), batches_max=1)
    assert ([batch.position for batch in batches], end, reason) == (
        [len(BATCH)],
        2 * len(BATCH),
        None,
    )


def test_an_unfilled_buffer_has_its_size_and_can_be_written_to() -> None:
    assert _core.unfilled(0) == b""
    buffer = _core.unfilled(1 << 20)
    assert len(buffer) == 1 << 20
    buffer[:] = bytes(1 << 20)
    assert buffer == bytes(1 << 20)
    with pytest.raises(OverflowError):
        _core.unfilled(-1)
    with pytest.raises(MemoryError):
        _core.unfilled(1 << 63)


def test_null_columns_are_told_from_those_with_some_nulls() -> None:
    for keys in ([None, None, None], [b"a", b"b", b"c"], [None, b"b", None], [b"a", None, b"c"]):
        batch = _core.encode([(key, b"v", (), 1) for key in keys])
        columns = _core.FetchedRecords(batch, topic="t", partition=0).take_arrow(9)
        assert pa.record_batch(columns).column("key").to_pylist() == keys
