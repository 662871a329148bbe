"""The Rust core against its plain Python twin, on right batches and on wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import _core
from tests.reference import batches as twin
from tests.reference import checksums, codecs
from tests.reference.strategies import CODEC, INT64, OPTIONS, RECORDS

FIELDS = [name for name in twin.Batch.__slots__ if name != "length"]


def shown(record: _core.Record) -> tuple[Any, ...]:
    return (record.offset, record.timestamp, record.key, record.value, record.headers)


def expected(record: twin.Decoded) -> tuple[Any, ...]:
    return (record.offset, record.timestamp, record.key, record.value, record.headers)


def same_header(ours: _core.Batch, theirs: twin.Batch) -> bool:
    return all(getattr(ours, name) == getattr(theirs, name) for name in FIELDS)


def verdict(data: bytes) -> str | None:
    try:
        _core.validate(data)
    except _core.CorruptBatch as fault:
        return fault.reason
    return None


def twin_verdict(data: bytes) -> str | None:
    try:
        twin.validate(data)
    except twin.Corrupt as fault:
        return str(fault)
    return None


@given(RECORDS, OPTIONS)
def test_plain_batches_are_the_twins_to_the_byte(
    records: list[twin.Record], options: dict[str, Any]
) -> None:
    assert _core.encode(records, **options) == twin.encode(records, **options)


@given(st.data(), RECORDS)
def test_offset_deltas_with_gaps_are_kept(data: st.DataObject, records: list[twin.Record]) -> None:
    unique = st.sets(st.integers(0, 2**31 - 2), min_size=len(records), max_size=len(records))
    deltas = sorted(data.draw(unique))
    batch = _core.encode(records, offset_deltas=deltas)
    assert batch == twin.encode(records, offset_deltas=deltas)
    assert [record.offset for record in _core.decode(batch)] == deltas


@given(RECORDS, OPTIONS, CODEC)
def test_what_the_core_writes_the_twin_reads(
    records: list[twin.Record], options: dict[str, Any], codec: int
) -> None:
    batch = _core.encode(records, codec=codec, **options)
    header, found = twin.validate(batch)
    assert same_header(_core.validate(batch), header)
    assert [(r.key, r.value, list(r.headers)) for r in found] == [
        (key, value, headers) for key, value, headers, _ in records
    ]


@given(RECORDS, OPTIONS, CODEC, st.integers(0, 10))
def test_what_the_twin_writes_the_core_reads(
    records: list[twin.Record], options: dict[str, Any], codec: int, skipped: int
) -> None:
    batch = twin.encode(records, codec=codec, **options)
    from_offset = int(options.get("base_offset", 0)) + skipped
    ours = _core.decode(batch, from_offset=from_offset)
    assert [shown(r) for r in ours] == [expected(r) for r in twin.decode(batch, from_offset)]


@given(RECORDS, OPTIONS, CODEC, INT64, INT64)
def test_validate_finds_what_is_in_the_records(
    records: list[twin.Record], options: dict[str, Any], codec: int, low: int, high: int
) -> None:
    batch = twin.encode(records, codec=codec, **options)
    _, inside = twin.validate(batch)
    found = _core.validate(batch, timestamp_min=low, timestamp_max=high, keys_required=True)
    times = [record.timestamp for record in inside]
    latest = max([-1, *times])
    assert found.found_max_timestamp == latest
    assert found.found_max_timestamp_delta == (times.index(latest) if latest > -1 else -1)
    assert found.keyless == tuple(n for n, record in enumerate(inside) if record.key is None)
    assert found.out_of_time == tuple(
        n for n, time in enumerate(times) if time != -1 and not low <= time <= high
    )


@settings(max_examples=400)
@given(
    RECORDS,
    CODEC,
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3),
    st.booleans(),
)
def test_both_give_the_same_verdict_on_a_mutated_batch(
    records: list[twin.Record], codec: int, changes: list[tuple[int, int]], reseal: bool
) -> None:
    """With `reseal` the checksum holds again, so that what lies behind it is reached."""
    batch = bytearray(twin.encode(records, codec=codec))
    for place, byte in changes:
        batch[place % len(batch)] = byte
    data = twin.resealed(bytes(batch)) if reseal else bytes(batch)
    ours, theirs = verdict(data), twin_verdict(data)
    if theirs == "compressed data":
        assert ours is not None
    else:
        assert ours == theirs


@given(RECORDS, st.binary(max_size=12), st.integers(0), st.integers(0, 8))
def test_both_give_the_same_verdict_on_spliced_records(
    records: list[twin.Record], splice: bytes, place: int, removed: int
) -> None:
    batch, own = twin.whole(twin.encode(records), 0)
    payload = own[twin.HEADER_BYTES :]
    at = place % (len(payload) + 1)
    data = twin.sealed(batch, payload[:at] + splice + payload[at + removed :])
    assert verdict(data) == twin_verdict(data)


@given(st.lists(st.tuples(RECORDS, CODEC), max_size=4), st.binary(max_size=80), st.integers(0))
def test_scan_stops_where_the_twin_stops(
    parts: list[tuple[list[twin.Record], int]], tail: bytes, cut: int
) -> None:
    data = b"".join(_core.encode(records, codec=codec) for records, codec in parts) + tail
    for candidate in (data, data[: cut % (len(data) + 1)]):
        ours, end, reason = _core.scan(candidate)
        theirs, twin_end, twin_reason = twin.scan(candidate)
        assert (end, reason, len(ours)) == (twin_end, twin_reason, len(theirs))
        assert all(map(same_header, ours, theirs))


@given(RECORDS, CODEC, st.integers(0))
def test_a_batch_cut_anywhere_is_truncated_and_not_decoded(
    records: list[twin.Record], codec: int, cut: int
) -> None:
    batch = _core.encode(records, codec=codec)
    shorter = batch[: cut % len(batch)]
    with pytest.raises(_core.CorruptBatch, match="truncated"):
        _core.validate(shorter)
    assert _core.decode(shorter) == []
    assert _core.decode(batch + shorter) == _core.decode(batch)


@given(st.binary(max_size=200))
def test_any_bytes_are_answered_and_never_crash(data: bytes) -> None:
    assert verdict(data) == twin_verdict(data)
    assert _core.scan(data)[1:] == twin.scan(data)[1:]
    for codec in range(1, 5):
        try:
            ours: bytes | None = _core.decompress(codec, data, 1 << 20)
        except _core.CorruptBatch:
            ours = None
        try:
            theirs: bytes | None = codecs.decompress(codec, data)
        except ValueError:
            theirs = None
        assert ours == theirs


@given(RECORDS, CODEC, st.integers(-(2**63), 2**63 - 1), st.none() | INT64, st.none() | INT64)
def test_a_restamped_batch_is_valid_and_says_what_was_asked(
    records: list[twin.Record],
    codec: int,
    base_offset: int,
    append_time: int | None,
    latest: int | None,
) -> None:
    before = twin.encode(records, codec=codec)
    batch = bytearray(b"..." + before)
    _core.restamp(
        batch,
        position=3,
        base_offset=base_offset,
        leader_epoch=7,
        log_append_time=append_time,
        max_timestamp=latest,
    )
    header, _ = twin.validate(bytes(batch[3:]))
    assert (header.base_offset, header.leader_epoch) == (base_offset, 7)
    assert bool(header.attributes & twin.LOG_APPEND_TIME) == (append_time is not None)
    was = twin.validate(before)[0].max_timestamp
    asked = append_time if append_time is not None else latest
    assert header.max_timestamp == (was if asked is None else asked)
    assert batch[:3] == b"..."


@given(RECORDS, OPTIONS, CODEC, CODEC)
def test_recompressing_keeps_header_and_records(
    records: list[twin.Record], options: dict[str, Any], before: int, after: int
) -> None:
    batch = _core.encode(records, codec=before, **options)
    again = _core.recompress(batch, codec=after)
    assert _core.validate(again).codec == after
    assert _core.decode(again) == _core.decode(batch)
    assert _core.recompress(again, codec=0) == _core.encode(records, **options)


@given(CODEC, st.binary(max_size=500), st.integers(0, 600), st.integers(1, 400))
def test_compression_goes_both_ways_with_other_peoples_libraries(
    codec: int, head: bytes, zeros: int, repeat: int
) -> None:
    plain = (head + bytes(zeros)) * repeat
    assert codecs.decompress(codec, _core.compress(codec, plain)) == plain
    assert _core.decompress(codec, codecs.compress(codec, plain), len(plain)) == plain


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_checksums_are_the_twins(data: bytes, value: int) -> None:
    assert _core.crc32c(data, value) == checksums.crc32c(data, value)
    assert _core.murmur2(data) == checksums.murmur2(data)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_checksum_can_be_continued(head: bytes, tail: bytes) -> None:
    assert _core.crc32c(tail, _core.crc32c(head)) == _core.crc32c(head + tail)
