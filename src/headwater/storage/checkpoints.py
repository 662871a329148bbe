"""Small text files that say how far something got: one version line, one count line, then lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.io import Disk
from headwater.model import TopicPartition

_VERSION = "0"


class CheckpointCorrupt(ValueError):
    """A checkpoint file that cannot be read as one."""


def render(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode()


def parse(data: bytes, *, path: str) -> list[str]:
    if not data:
        return []  # made, and never written
    try:
        version, count, *rows = data.decode().splitlines()
        if version != _VERSION or int(count) != len(rows):
            raise ValueError
    except ValueError:
        raise CheckpointCorrupt(f"checkpoint {path} is malformed: {data[:60]!r}") from None
    return rows


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the file durably. Blocks on the device."""
    lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
    disk.write_atomically(path, render(lines))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """What was written last; empty if there is no file; CheckpointCorrupt if it is not one."""
    if not disk.exists(path):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for row in parse(disk.read(path), path=path):
        try:
            topic, partition, offset = row.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CheckpointCorrupt(f"checkpoint {path} has a malformed line: {row!r}") from None
    return offsets
