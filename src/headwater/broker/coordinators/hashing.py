"""The partition of a coordinator's topic that an id belongs to, by Java's string hash."""

from __future__ import annotations

from functools import lru_cache

# The longest key, in bytes, that a record of a coordinator can have.
KEY_BYTES_MAX = 2**15 - 1
# Ids that are asked for again and again; hashing one takes longer than finding its shard.
_REMEMBERED_MAX = 4096
_REMEMBERED_LENGTH_MAX = 256


def is_too_long(text: str) -> bool:
    """Returns whether no record can have this id."""
    length = len(text)
    if 4 * length > KEY_BYTES_MAX >= length:
        length = len(text.encode())
    return length > KEY_BYTES_MAX


def java_hash(text: str) -> int:
    """Returns `String.hashCode`, which is over UTF-16 units and in signed 32 bits."""
    return _remembered(text) if len(text) <= _REMEMBERED_LENGTH_MAX else _hash(text)


def _hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


_remembered = lru_cache(_REMEMBERED_MAX)(_hash)


def partition_of(text: str, partitions: int) -> int:
    """Returns a partition. An id that no record can have belongs to none, and may be many megabytes
    long: a client that asks for it is sent to the first."""
    if len(text) > KEY_BYTES_MAX:
        return 0
    value = java_hash(text)
    return (0 if value == -(2**31) else abs(value)) % partitions
