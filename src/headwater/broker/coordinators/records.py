"""The codecs of the coordinators' topics: keys and values are a number and a message each."""

from __future__ import annotations

from struct import Struct

from headwater.coordination import Record
from headwater.groups.offsets import NEVER
from headwater.protocol import DecodeError, Message, decode, encode
from headwater.protocol.records.group_offsets import GroupMetadataValue, OffsetCommitValue
from headwater.protocol.records.groups import group_record
from headwater.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from headwater.transactions.transaction import value_version as transaction_value_version

_NUMBER = Struct(">h")
_KEY_VERSION = 0
_GROUP_METADATA = 3
# The only version with an expiration time, which clients older than Kafka 2.1 ask for.
_OFFSET_THAT_EXPIRES = 1


def value_version(value: Message) -> int:
    """Returns the version in which Kafka 4.3 writes a value: the newest, with two exceptions."""
    if isinstance(value, GroupMetadataValue):
        return _GROUP_METADATA
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != NEVER:
        return _OFFSET_THAT_EXPIRES
    return type(value).VERSIONS[1]


class GroupCodec:
    """Encodes and decodes records. Keys have version 0; a value begins with its version."""

    def __init__(self) -> None:
        self._classes: dict[int, tuple[type[Message], type[Message]] | None] = {}

    def _find(self, key: bytes) -> tuple[type[Message], type[Message]] | None:
        if len(key) < _NUMBER.size:
            return None
        number = _NUMBER.unpack_from(key)[0]
        if number not in self._classes:
            self._classes[number] = group_record(number)
        return self._classes[number]

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        number = type(record.key).API
        assert number is not None, f"{type(record.key).__name__} is not a key"
        key = _NUMBER.pack(number) + encode(record.key, _KEY_VERSION)
        if record.value is None:
            return key, None
        version = value_version(record.value)
        return key, _NUMBER.pack(version) + encode(record.value, version)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        found = self._find(key)
        if found is None:
            return None
        key_class, value_class = found
        plain: Message | None = None
        if value is not None:
            version = _NUMBER.unpack_from(value)[0]
            try:
                plain = decode(value_class, value, version, _NUMBER.size)
            except DecodeError:
                return None
        return Record(decode(key_class, key, _KEY_VERSION, _NUMBER.size), plain)


class TransactionCodec:
    """Encodes and decodes records of transactions, whose values have two versions."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        key = _NUMBER.pack(_KEY_VERSION) + encode(record.key, _KEY_VERSION)
        if record.value is None:
            return key, None
        assert isinstance(record.value, TransactionLogValue), type(record.value).__name__
        version = transaction_value_version(record.value)
        return key, _NUMBER.pack(version) + encode(record.value, version)

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        if len(key) < _NUMBER.size or _NUMBER.unpack_from(key)[0] != _KEY_VERSION:
            return None
        plain = None
        if value is not None:
            # A value of an unknown version fails the load, as in Kafka: to go on without it could
            # leave a transaction half done.
            version = _NUMBER.unpack_from(value)[0]
            plain = decode(TransactionLogValue, value, version, _NUMBER.size)
        return Record(decode(TransactionLogKey, key, _KEY_VERSION, _NUMBER.size), plain)
