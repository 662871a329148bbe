"""Record batches in plain Python: slow, obviously right, and the judge of the Rust core."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.reference.checksums import crc32c
from tests.reference.codecs import compress, decompress

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40

Header = tuple[str, bytes | None]
Record = tuple[bytes | None, bytes | None, Sequence[Header], int]


class Corrupt(ValueError):
    """`args` is the reason alone: where it stands is the core's business."""


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def last_offset(self) -> int:
        return wrapped(self.base_offset + self.last_offset_delta, bits=64)


@dataclass(frozen=True, slots=True)
class Decoded:
    offset: int
    offset_delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def wrapped(value: int, *, bits: int) -> int:
    """As Java's integers do."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def write_varint(value: int) -> bytes:
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        if length > len(self.data) - self.at:
            raise Corrupt("record cut short")
        self.at += length
        return self.data[self.at - length : self.at]

    def varint(self, *, bits: int) -> int:
        value = 0
        for index in range(-(-bits // 7)):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                value &= (1 << bits) - 1
                return -(value >> 1) - 1 if value & 1 else value >> 1
        raise Corrupt("varint too long")

    def optional(self, reason: str) -> bytes | None:
        length = self.varint(bits=32)
        if length < -1:
            raise Corrupt(reason)
        return None if length == -1 else self.take(length)


def write_optional(data: bytes | None) -> bytes:
    return write_varint(-1) if data is None else write_varint(len(data)) + data


def encode(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    offset_deltas: Sequence[int] | None = None,
) -> bytes:
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    base_timestamp = records[0][3]
    payload = b""
    for delta, (key, value, headers, timestamp) in zip(deltas, records, strict=True):
        body = b"\x00" + write_varint(wrapped(timestamp - base_timestamp, bits=64))
        body += write_varint(delta) + write_optional(key) + write_optional(value)
        body += write_varint(len(headers))
        for name, content in headers:
            body += write_optional(name.encode()) + write_optional(content)
        payload += write_varint(len(body)) + body
    attributes = codec
    attributes |= TRANSACTIONAL if transactional else 0
    attributes |= CONTROL if control else 0
    attributes |= LOG_APPEND_TIME if log_append_time is not None else 0
    latest = max(-1, *(record[3] for record in records))
    batch = Batch(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=deltas[-1],
        base_timestamp=base_timestamp,
        max_timestamp=latest if log_append_time is None else log_append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    return sealed(batch, compress(codec, payload))


def sealed(batch: Batch, payload: bytes) -> bytes:
    """The batch as bytes, with the length and the checksum that belong to it."""
    fields = [getattr(batch, name) for name in Batch.__slots__]
    fields[1] = HEADER_BYTES - 12 + len(payload)
    return resealed(HEADER.pack(*fields) + payload)


def resealed(data: bytes) -> bytes:
    """The same bytes with a checksum that holds, whatever else is wrong with them."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def whole(data: bytes, position: int) -> tuple[Batch, bytes]:
    rest = data[position:]
    if len(rest) < 12:
        raise Corrupt("truncated")
    length = struct.unpack_from(">i", rest, 8)[0]
    if length < 14:
        raise Corrupt("length")
    if len(rest) < 17:
        raise Corrupt("truncated")
    if rest[16] != 2:
        raise Corrupt(f"magic {wrapped(rest[16], bits=8)}")
    if length + 12 < HEADER_BYTES:
        raise Corrupt("length")
    if len(rest) < length + 12:
        raise Corrupt("truncated")
    return Batch(*HEADER.unpack_from(rest)), rest[: length + 12]


def check_crc(batch: Batch, data: bytes) -> None:
    if crc32c(data[21:]) != batch.crc:
        raise Corrupt("crc")


def records(batch: Batch, data: bytes) -> Iterator[Decoded]:
    try:
        reader = Reader(decompress(batch.codec, data[HEADER_BYTES:]))
    except ValueError as error:
        raise Corrupt("compressed data") from error
    for _ in range(batch.count):
        if reader.at == len(reader.data):
            raise Corrupt("record count")
        length = reader.varint(bits=32)
        if not 0 <= length <= len(reader.data) - reader.at:
            raise Corrupt("record length")
        yield _record(batch, Reader(reader.take(length)))
    if reader.at != len(reader.data):
        raise Corrupt("trailing bytes")


def _record(batch: Batch, body: Reader) -> Decoded:
    body.take(1)
    timestamp_delta = body.varint(bits=64)
    offset_delta = body.varint(bits=32)
    key = body.optional("key length")
    value = body.optional("value length")
    count = body.varint(bits=32)
    if not 0 <= count <= len(body.data) - body.at:
        raise Corrupt("header count")
    headers = []
    for _ in range(count):
        length = body.varint(bits=32)
        if length < 0:
            raise Corrupt("header key length")
        name = body.take(length).decode("utf-8", "replace")
        headers.append((name, body.optional("header value length")))
    if body.at != len(body.data):
        raise Corrupt("record length")
    if batch.attributes & LOG_APPEND_TIME:
        timestamp = batch.max_timestamp
    else:
        timestamp = wrapped(batch.base_timestamp + timestamp_delta, bits=64)
    offset = wrapped(batch.base_offset + offset_delta, bits=64)
    return Decoded(offset, offset_delta, timestamp, key, value, tuple(headers))


def validate(data: bytes, position: int = 0) -> tuple[Batch, list[Decoded]]:
    batch, own = whole(data, position)
    check_crc(batch, own)
    if batch.codec > 4:
        raise Corrupt(f"codec {batch.codec}")
    if batch.count < 1:
        raise Corrupt("record count")
    if batch.last_offset_delta != batch.count - 1:
        raise Corrupt("offset deltas")
    found: list[Decoded] = []
    for record in records(batch, own):
        if record.offset_delta != len(found):
            raise Corrupt("offset deltas")
        found.append(record)
    return batch, found


def scan(data: bytes, position: int = 0) -> tuple[list[Batch], int, str | None]:
    batches: list[Batch] = []
    while position < len(data):
        try:
            batch, own = whole(data, position)
            check_crc(batch, own)
        except Corrupt as fault:
            return batches, position, str(fault)
        batches.append(batch)
        position += len(own)
    return batches, position, None


def decode(data: bytes, from_offset: int = 0) -> list[Decoded]:
    decoded: list[Decoded] = []
    position = 0
    while position < len(data):
        try:
            batch, own = whole(data, position)
        except Corrupt as fault:
            if str(fault) == "truncated":
                break
            raise
        position += len(own)
        if batch.last_offset < from_offset or batch.count == 0:
            continue
        check_crc(batch, own)
        decoded += [record for record in records(batch, own) if record.offset >= from_offset]
    return decoded
