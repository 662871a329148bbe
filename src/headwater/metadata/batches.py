"""Batches of the metadata log and its snapshots: records to bytes and back.

Data batches carry framed metadata records. Control batches carry records of the quorum, without a
frame; the key holds their type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater import _core
from headwater.metadata.records import decode_record, encode_record
from headwater.protocol import DecodeError, Message, decode, encode
from headwater.protocol.records.quorum import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

BATCH_BYTES_MAX = 8 * 1024 * 1024  # the maximum of Kafka's raft client

_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_KEY_VERSION = 0


class ControlType(IntEnum):
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_CONTROL_CLASSES: dict[int, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_CONTROL_TYPES = {cls: number for number, cls in _CONTROL_CLASSES.items()}


class MetadataBatch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    timestamp: int
    is_control: bool
    records: list[Message]  # metadata records, or control records
    size: int


def encode_batch(
    records: Sequence[Message],
    *,
    metadata_version: int,
    now_ms: int,
    base_offset: int = 0,
    epoch: int = -1,
) -> bytes:
    return _core.encode(
        [(None, encode_record(record, metadata_version), (), now_ms) for record in records],
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def encode_control_batch(
    records: Sequence[Message], *, now_ms: int, base_offset: int = 0, epoch: int = -1
) -> bytes:
    return _core.encode(
        [(_control_key(record), encode(record, 0), (), now_ms) for record in records],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def decode_batches(data: bytes | memoryview) -> Iterator[MetadataBatch]:
    """Yields all complete batches in order; raises DecodeError at the first malformed one."""
    headers, reached, problem = _core.scan(data)
    if problem not in (None, "truncated"):
        raise DecodeError(f"byte {reached} of a metadata log: {problem}")
    view = memoryview(data)
    for header in headers:
        decoded = _core.decode(view[header.position : header.position + header.size])
        yield MetadataBatch(
            base_offset=header.base_offset,
            end_offset=header.last_offset + 1,
            epoch=header.leader_epoch,
            timestamp=header.max_timestamp,
            is_control=header.is_control,
            records=[
                _decode_control(record) if header.is_control else decode_record(record.value)
                for record in decoded
            ],
            size=header.size,
        )


def _control_key(record: Message) -> bytes:
    return _CONTROL_KEY.pack(_CONTROL_KEY_VERSION, _CONTROL_TYPES[type(record)])


def _decode_control(record: _core.Record) -> Message:
    if record.key is None or len(record.key) < _CONTROL_KEY.size or record.value is None:
        raise DecodeError(f"control record at offset {record.offset} has no type or no value")
    _, number = _CONTROL_KEY.unpack_from(record.key)
    if number not in _CONTROL_CLASSES:
        raise DecodeError(f"control record of unknown type {number} at offset {record.offset}")
    cls = _CONTROL_CLASSES[number]
    # The first field of each is its version.
    (version,) = struct.unpack_from(">h", record.value)
    return decode(cls, record.value, version)
