"""Batches that lie, and compressed data that would fill the memory."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater import _core
from tests.reference import batches as twin
from tests.reference import codecs
from tests.reference.batches import write_varint

MEBIBYTE = 1 << 20
BOMB_BYTES = 64 * MEBIBYTE
RECORD = (b"k", b"v", [("h", b"1")], 1)
GOOD = twin.encode([RECORD, RECORD])
ZSTD_CONTENT_SIZE_8 = b"\x28\xb5\x2f\xfd\xe0"  # single segment, content size in eight bytes
ZSTD_WINDOW = b"\x28\xb5\x2f\xfd\x00"  # no content size, a window byte follows
EMPTY_LAST_BLOCK = b"\x01\x00\x00"


def lying(**fields: int) -> bytes:
    batch, own = twin.whole(GOOD, 0)
    return twin.sealed(dataclasses.replace(batch, **fields), own[twin.HEADER_BYTES :])


def holding(body: bytes) -> bytes:
    """A batch of one record with this body, whatever it is."""
    batch, _ = twin.whole(twin.encode([RECORD]), 0)
    return twin.sealed(batch, write_varint(len(body)) + body)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (GOOD[:11], "truncated"),
        (GOOD[:60], "truncated"),
        (GOOD[:-1], "truncated"),
        (bytes(100), "length"),
        (GOOD[:8] + struct.pack(">i", -1) + GOOD[12:], "length"),
        (GOOD[:8] + struct.pack(">i", 48) + GOOD[12:], "length"),
        (GOOD[:8] + struct.pack(">i", 2**31 - 1) + GOOD[12:], "truncated"),
        (GOOD[:16] + b"\x00" + GOOD[17:], "magic 0"),
        (GOOD[:16] + b"\x01" + GOOD[17:], "magic 1"),
        (GOOD[:16] + b"\x03" + GOOD[17:], "magic 3"),
        (flipped(GOOD, 17), "crc"),
        (flipped(GOOD, len(GOOD) - 1), "crc"),
        (lying(attributes=5), "codec 5"),
        (lying(attributes=7), "codec 7"),
        (lying(count=0), "record count"),
        (lying(count=-1, last_offset_delta=-2), "record count"),
        (lying(count=3, last_offset_delta=2), "record count"),
        (lying(count=2**31 - 1, last_offset_delta=2**31 - 2), "record count"),
        (lying(count=1, last_offset_delta=0), "trailing bytes"),
        (lying(last_offset_delta=2), "offset deltas"),
        (twin.encode([RECORD, RECORD], offset_deltas=[0, 2]), "offset deltas"),
        (lying(attributes=1), "gzip data"),
        (lying(attributes=2), "snappy data"),
        (lying(attributes=3), "lz4 data"),
        (lying(attributes=4), "zstd data"),
        (holding(b""), "record cut short"),
        (holding(b"\x00" + b"\x80" * 10), "varint too long"),
        (holding(b"\x00\x00" + b"\x80" * 5), "varint too long"),
        (holding(b"\x00\x00\x00" + write_varint(-2)), "key length"),
        (holding(b"\x00\x00\x00\x01" + write_varint(-2)), "value length"),
        (holding(b"\x00\x00\x00" + write_varint(2**31 - 1)), "record cut short"),
        (holding(b"\x00\x00\x00\x01\x01" + write_varint(-1)), "header count"),
        (holding(b"\x00\x00\x00\x01\x01" + write_varint(2**31 - 1)), "header count"),
        (holding(b"\x00\x00\x00\x01\x01\x02" + write_varint(-1) + b"."), "header key length"),
        (holding(b"\x00\x00\x00\x01\x01\x02\x00" + write_varint(-2)), "header value length"),
        (holding(b"\x00\x00\x00\x01\x01\x00."), "record length"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_batch_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(_core.CorruptBatch) as refused:
        _core.validate(data)
    assert refused.value.reason == reason


def test_a_fault_is_found_where_it_stands() -> None:
    second = flipped(GOOD, len(GOOD) - 1)
    with pytest.raises(_core.CorruptBatch) as refused:
        _core.decode(GOOD + second)
    assert (refused.value.reason, refused.value.position) == ("crc", len(GOOD))
    bad_key = holding(b"\x00\x00\x00" + write_varint(-2))
    with pytest.raises(_core.CorruptBatch) as refused:
        _core.validate(GOOD + bad_key, position=len(GOOD))
    assert refused.value.position == len(GOOD) + twin.HEADER_BYTES


def test_a_header_key_that_is_no_text_is_shown_with_a_mark() -> None:
    batch = holding(b"\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x01")
    assert _core.decode(batch)[0].headers == (("\ufffd\ufffd", None),)


def test_only_the_first_hundred_bad_records_are_listed() -> None:
    batch = _core.encode([(None, b"", (), 5)] * 300)
    found = _core.validate(batch, timestamp_max=4, keys_required=True)
    assert found.keyless == found.out_of_time == tuple(range(100))


def peak_growth(action: Callable[[], object]) -> int:
    """Returns how far the resident memory of this process rises at its peak, in bytes."""

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = status("VmRSS")
    action()
    return status("VmHWM") - before


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused_before_it_takes_memory(codec: int) -> None:
    bomb = codecs.compress(codec, bytes(BOMB_BYTES))
    batch, _ = twin.whole(twin.encode([RECORD], codec=codec), 0)
    sealed = twin.sealed(batch, bomb)

    def explode() -> None:
        with pytest.raises(_core.OutputTooLarge):
            _core.decompress(codec, bomb, MEBIBYTE)
        with pytest.raises(_core.OutputTooLarge):
            _core.validate(sealed, output_bytes_max=MEBIBYTE)

    assert peak_growth(explode) < 12 * MEBIBYTE


def test_a_bomb_that_does_not_say_its_size_is_refused_too() -> None:
    window = b"\x38"  # 128 KiB, of which each block is one byte repeated
    block = struct.pack("<I", 128 * 1024 << 3 | 1 << 1)[:3] + b"z"
    last = struct.pack("<I", 128 * 1024 << 3 | 1 << 1 | 1)[:3] + b"z"
    bomb = ZSTD_WINDOW + window + block * 511 + last

    def explode() -> None:
        with pytest.raises(_core.OutputTooLarge):
            _core.decompress(4, bomb, MEBIBYTE)

    assert peak_growth(explode) < 4 * MEBIBYTE
    assert _core.decompress(4, ZSTD_WINDOW + window + last, MEBIBYTE) == b"z" * 128 * 1024


def test_a_bound_is_met_to_the_byte() -> None:
    plain = b"abc" * 100_000
    for codec in range(5):
        packed = _core.compress(codec, plain)
        assert _core.decompress(codec, packed, len(plain)) == plain
        with pytest.raises(_core.OutputTooLarge):
            _core.decompress(codec, packed, len(plain) - 1)


def test_the_bound_when_none_is_given_is_64_mebibytes() -> None:
    batch, _ = twin.whole(twin.encode([RECORD], codec=4), 0)
    with pytest.raises(_core.OutputTooLarge):
        _core.validate(twin.sealed(batch, codecs.compress(4, bytes(65 * MEBIBYTE))))


@pytest.mark.parametrize(
    ("codec", "forged"),
    [
        (1, _core.compress(1, b"x")[:-4] + struct.pack("<I", 50 * MEBIBYTE)),
        (2, b"\xff\xff\xff\xff\x0f" + bytes(20)),
        (2, b"\x80\x80\x80\x18" + bytes(20)),  # 48 MiB
        (2, codecs.XERIAL_HEADER + struct.pack(">I", 2**32 - 1) + bytes(20)),
        (3, _core.compress(3, b"x")[:7] + struct.pack("<I", 4 * MEBIBYTE) + bytes(20)),
        (4, ZSTD_CONTENT_SIZE_8 + struct.pack("<Q", 50 * MEBIBYTE) + EMPTY_LAST_BLOCK),
        (4, ZSTD_CONTENT_SIZE_8 + struct.pack("<Q", 2**40) + EMPTY_LAST_BLOCK),
        (4, ZSTD_WINDOW + b"\xff" + EMPTY_LAST_BLOCK),  # a window of terabytes
    ],
)
def test_a_forged_size_takes_no_memory(codec: int, forged: bytes) -> None:
    def explode() -> None:
        with pytest.raises(_core.CorruptBatch):
            _core.decompress(codec, forged, 64 * MEBIBYTE)

    assert peak_growth(explode) < 4 * MEBIBYTE


def test_a_forged_record_count_takes_no_memory() -> None:
    forged = lying(count=2**31 - 1)

    def explode() -> None:
        with pytest.raises(_core.CorruptBatch):
            _core.decode(forged)
        with pytest.raises(_core.CorruptBatch):
            _core.decode_arrow(forged)

    assert peak_growth(explode) < 4 * MEBIBYTE


def test_an_lz4_match_of_distance_zero_is_refused() -> None:
    block = b"\x10a\x00\x00" + b"\x50bcdef"
    frame = _core.compress(3, b"")[:7] + struct.pack("<I", len(block)) + block + bytes(4)
    with pytest.raises(_core.CorruptBatch):
        _core.decompress(3, frame, 1000)


@pytest.mark.parametrize("codec", [1, 2, 4])
def test_streams_one_after_the_other_are_one(codec: int) -> None:
    joined = _core.compress(codec, b"first ") + _core.compress(codec, b"second")
    assert _core.decompress(codec, joined, 100) == b"first second"
    with pytest.raises(_core.OutputTooLarge):
        _core.decompress(codec, joined, 11)


def test_a_second_lz4_frame_is_refused_for_java_would_not_see_it() -> None:
    with pytest.raises(_core.CorruptBatch):
        _core.decompress(3, _core.compress(3, b"first") * 2, 100)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_data_cut_anywhere_is_refused(codec: int) -> None:
    packed = _core.compress(codec, zlib.compress(bytes(range(256)) * 4))
    starts = {len(codecs.XERIAL_HEADER)} if codec == 2 else set()  # there it says: no block
    for length in set(range(len(packed))) - starts:
        with pytest.raises(_core.CorruptBatch):
            _core.decompress(codec, packed[:length], MEBIBYTE)


def test_raw_snappy_is_read_too() -> None:
    raw = _core.compress(2, b"plain" * 10)[len(codecs.XERIAL_HEADER) + 4 :]
    assert _core.decompress(2, raw, 100) == b"plain" * 10
