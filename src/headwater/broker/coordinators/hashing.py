"""The partition of a coordinator's topic that an id belongs to, by Java's string hash."""

from __future__ import annotations

from functools import lru_cache

# Ids that are asked for again and again; hashing one takes longer than finding its shard.
_REMEMBERED_MAX = 4096


@lru_cache(_REMEMBERED_MAX)
def java_hash(text: str) -> int:
    """Returns `String.hashCode`, which is over UTF-16 units and in signed 32 bits."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(text: str, partitions: int) -> int:
    value = java_hash(text)
    return (0 if value == -(2**31) else abs(value)) % partitions
