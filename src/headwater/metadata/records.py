"""Encoding of metadata records: the frame around each, and the version to write.

A value in `__cluster_metadata` is a frame version (1), the record's number, its version (all three
unsigned varints) and the record itself. The version depends on the finalized
metadata.version, so that the oldest node of the cluster can read it.
"""

from __future__ import annotations

from enum import IntEnum

from headwater.metadata import features
from headwater.protocol import DecodeError, Message, decoder, encoder

_FRAME_VERSION = 1
_CLASSES: dict[int, type[Message]] = {}  # filled once, then only read


class RecordType(IntEnum):
    """The type number of each record; missing numbers were never released."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28
    UNREGISTER_CONTROLLER = 29


def record_version(record: Message, metadata_version: int) -> int:
    """Returns the version in which to write this record at this metadata.version."""
    match record.API:
        case RecordType.REGISTER_BROKER:
            if metadata_version >= features.LEVEL_CORDONED_DIRECTORIES:
                return 4
            if metadata_version >= features.LEVEL_DIRECTORIES:
                return 3
            return 2 if metadata_version >= features.LEVEL_MIGRATION else 1
        case RecordType.PARTITION | RecordType.PARTITION_CHANGE:
            if metadata_version >= features.LEVEL_ELR:
                return 2
            return 1 if metadata_version >= features.LEVEL_DIRECTORIES else 0
        case RecordType.BROKER_REGISTRATION_CHANGE:
            return _registration_change_version(record)
        case _:
            return 0


def _registration_change_version(record: Message) -> int:
    """Returns the lowest version that can represent this record."""
    if getattr(record, "cordoned_log_dirs") is not None:  # noqa: B009 - a slot of one record only
        return 3
    if getattr(record, "log_dirs"):  # noqa: B009
        return 2
    return 1 if getattr(record, "in_controlled_shutdown") else 0  # noqa: B009


def encode_record(record: Message, metadata_version: int) -> bytes:
    assert record.API is not None
    version = record_version(record, metadata_version)
    # Numbers of records and versions are below 128: each unsigned varint is one byte.
    out = bytearray((_FRAME_VERSION, record.API, version))
    encoder(type(record), version)(record, out)
    return bytes(out)


def decode_record(value: bytes | memoryview | None) -> Message:
    """Decodes a record; raises DecodeError if it is malformed or of an unknown type or version."""
    if value is None:
        raise DecodeError("a metadata record must have a value")
    frame, position = _read_uvarint(value, 0)
    if frame != _FRAME_VERSION:
        raise DecodeError(f"metadata frame version {frame}, expected {_FRAME_VERSION}")
    number, position = _read_uvarint(value, position)
    version, position = _read_uvarint(value, position)
    record, end = decoder(record_class(number), version)(value, position)
    if end != len(value):
        raise DecodeError(f"{len(value) - end} bytes after a {type(record).__name__}")
    return record


def record_class(number: int) -> type[Message]:
    """Returns the class of a record type; its module is imported on first use."""
    if not _CLASSES:
        from headwater.protocol.records import metadata_nodes, metadata_security, metadata_topics

        for module in (metadata_nodes, metadata_security, metadata_topics):
            for found in vars(module).values():
                if isinstance(found, type) and issubclass(found, Message) and found.API is not None:
                    _CLASSES[found.API] = found
    try:
        return _CLASSES[number]
    except KeyError:
        raise DecodeError(f"unknown metadata record {number}") from None


def _read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise DecodeError("malformed frame of a metadata record")
