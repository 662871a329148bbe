"""Small text files: checkpoints of offsets, and `partition.metadata`.

A checkpoint has a line with its version, a line with the number of entries, then the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.io import Disk, write_lock
from headwater.model import TopicPartition, id_from_text, id_text
from headwater.storage import names

_VERSION = "0"
_METADATA_VERSION = "version: 0"
_TOPIC_ID = "topic_id: "


class CheckpointCorrupt(ValueError):
    """A checkpoint file that cannot be parsed."""


class CheckpointFile:
    """A checkpoint that both the loop and workers write. The content that was made last wins: a
    job that a truncation overtakes must not restore a recovery point or an epoch from before the
    cut."""

    __slots__ = ("_disk", "_lock", "_made", "_written", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._lock = write_lock()
        self._made = 0
        self._written = 0
        self.path = path

    def move_to(self, path: str) -> None:
        """Follows the file to its new name."""
        self.path = path

    def prepare(self, content: Callable[[], bytes]) -> CheckpointWrite:
        """Returns a write of this content that is newer than all prepared before. For the loop
        only."""
        self._made += 1
        return CheckpointWrite(self, self._made, content)

    def write(self, number: int, content: bytes) -> None:
        with self._lock:
            if number > self._written:
                self._disk.write_atomically(self.path, content)
                self._written = number


@dataclass(frozen=True, slots=True)
class CheckpointWrite:
    """Content for a checkpoint that is not written yet. `run` blocks on the device."""

    file: CheckpointFile
    number: int
    content: Callable[[], bytes]

    def run(self) -> None:
        self.file.write(self.number, self.content())


def render(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode()


def parse(data: bytes, *, path: str) -> list[str]:
    if not data:
        return []  # created, and never written
    try:
        version, count, *rows = data.decode().splitlines()
        if version != _VERSION or int(count) != len(rows):
            raise ValueError
    except ValueError:
        raise CheckpointCorrupt(f"checkpoint {path} is malformed: {data[:60]!r}") from None
    return rows


def render_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return render(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the file durably. Blocks on the device."""
    disk.write_atomically(path, render_offsets(offsets))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Returns the offsets in a checkpoint, none if there is no file. Raises CheckpointCorrupt."""
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


def read_topic_id(disk: Disk, path: str) -> bytes | None:
    """Returns the topic id in a partition's directory, None if there is none or it is damaged."""
    file = f"{path}/{names.PARTITION_METADATA}"
    if not disk.exists(file):
        return None
    try:
        version, topic_id, *_ = disk.read(file).decode().splitlines()
        if version != _METADATA_VERSION or not topic_id.startswith(_TOPIC_ID):
            return None
        return id_from_text(topic_id.removeprefix(_TOPIC_ID))
    except ValueError:
        return None


def write_topic_id(disk: Disk, path: str, topic_id: bytes) -> str:
    """Writes `partition.metadata`, not yet durably. Returns its path."""
    target = f"{path}/{names.PARTITION_METADATA}"
    file = disk.open(target, create=True)
    try:
        file.truncate(0)
        file.append(f"{_METADATA_VERSION}\n{_TOPIC_ID}{id_text(topic_id)}".encode())
    finally:
        file.close()
    return target
