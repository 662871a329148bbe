"""Snapshots of the metadata log on disk: when to write, load and delete them.

A snapshot replaces all of the log before it. Old snapshots, and the segments they replace, are
deleted when together they are too large or too old; the last one always stays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headwater.config import NodeConfig
from headwater.io import Disk
from headwater.metadata import Image
from headwater.metadata.snapshot import (
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    file_name,
    id_from_file_name,
    image_records,
)
from headwater.model import OffsetAndEpoch
from headwater.protocol.records.quorum import VotersRecord
from headwater.storage import Log, RetiredSegment

_PART = ".part"
_DELETED = ".deleted"


class SnapshotJob(NamedTuple):
    """Writes one snapshot. For a worker: encoding a large image takes time."""

    disk: Disk
    path: str
    id: OffsetAndEpoch
    image: Image
    timestamp: int
    now_ms: int
    kraft_version: int
    voters: VotersRecord | None

    def run(self) -> None:
        data = encode_snapshot(
            image_records(self.image),
            metadata_version=self.image.metadata_version,
            epoch=self.id.epoch,
            timestamp=self.timestamp,
            now_ms=self.now_ms,
            kraft_version=self.kraft_version,
            voters=self.voters,
        )
        self.disk.write_atomically(f"{self.path}/{file_name(self.id)}", data)


class MetadataSnapshots:
    def __init__(self, disk: Disk, path: str, config: NodeConfig) -> None:
        self._disk = disk
        self._path = path
        self._config = config
        self._ids: list[OffsetAndEpoch] = []
        self._bytes = 0  # of records since the last snapshot
        self._last: OffsetAndEpoch = OffsetAndEpoch(0, 0)
        self._timestamp = -1
        self._since: float | None = None  # time of the first record after the last snapshot

    def load_latest(self) -> tuple[OffsetAndEpoch, Snapshot]:
        """Returns the newest snapshot, or an empty one if there is none. Raises DecodeError if it
        cannot be read: its records may be nowhere else."""
        for name in self._disk.list(self._path):
            snapshot_id = id_from_file_name(name)
            if snapshot_id is not None:
                self._ids.append(snapshot_id)
            elif name.endswith((f".checkpoint{_PART}", f".checkpoint{_DELETED}")):
                self._disk.remove(f"{self._path}/{name}")
        self._ids.sort()
        if not self._ids:
            return OffsetAndEpoch(0, 0), Snapshot([], timestamp=-1)
        latest = self._ids[-1]
        self._last = latest
        return latest, decode_snapshot(self._disk.read(f"{self._path}/{file_name(latest)}"))

    @property
    def latest(self) -> OffsetAndEpoch:
        """The newest snapshot on disk; there must be one."""
        return self._ids[-1]

    def exists(self, snapshot_id: OffsetAndEpoch) -> bool:
        return snapshot_id in self._ids

    def size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        if snapshot_id not in self._ids:
            return None
        return self._disk.size(f"{self._path}/{file_name(snapshot_id)}")

    def read(self, snapshot_id: OffsetAndEpoch, position: int, count: int) -> bytes:
        """Returns a part of a snapshot's file."""
        data = self._disk.read(f"{self._path}/{file_name(snapshot_id)}")
        return data[position : position + count]

    def install(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Writes a snapshot that the leader sent. Those it replaces stay until they are pruned."""
        self._disk.write_atomically(f"{self._path}/{file_name(snapshot_id)}", data)
        if snapshot_id not in self._ids:
            self._ids.append(snapshot_id)
            self._ids.sort()
        self._last = snapshot_id
        self._bytes = 0
        self._since = None

    def note(self, end: OffsetAndEpoch, *, timestamp: int, size: int) -> None:
        """Notes that a batch was applied to the image."""
        self._last = end
        self._timestamp = timestamp
        self._bytes += size

    def is_due(self, now: float) -> bool:
        if not self._bytes:
            return False
        if self._since is None:
            self._since = now
        config = self._config
        interval = config.metadata_log_max_snapshot_interval_ms / 1000
        return self._bytes >= config.metadata_log_max_record_bytes_between_snapshots or (
            interval > 0 and now - self._since >= interval
        )

    def job(
        self, image: Image, *, now_ms: int, kraft_version: int, voters: VotersRecord | None
    ) -> SnapshotJob:
        self._bytes = 0
        return SnapshotJob(
            self._disk,
            self._path,
            self._last,
            image,
            self._timestamp,
            now_ms,
            kraft_version,
            voters,
        )

    def written(self, job: SnapshotJob, now: float) -> None:
        if job.id not in self._ids:
            self._ids.append(job.id)
            self._ids.sort()  # a newer one may have come from the leader meanwhile
        self._since = now if self._bytes else None

    def prune(self, log: Log, *, now_ms: int) -> Callable[[], None] | None:
        """Drops what is no longer needed from the log; returns the job that deletes the files."""
        config = self._config
        sizes = {
            snapshot_id: self._disk.size(f"{self._path}/{file_name(snapshot_id)}")
            for snapshot_id in self._ids
        }
        total = log.size + sum(sizes.values())
        dropped: list[OffsetAndEpoch] = []
        while len(self._ids) > 1:
            oldest, following = self._ids[:2]
            age_ms = now_ms - self._disk.modified_ms(f"{self._path}/{file_name(oldest)}")
            is_large = 0 <= config.metadata_max_retention_bytes < total
            is_old = 0 <= config.metadata_max_retention_ms < age_ms
            if not is_large and not is_old:
                break
            dropped.append(self._ids.pop(0))
            total -= sizes[oldest]
            before = log.size
            log.delete_records_before(following.offset)
            total -= before - log.size
        retired = log.delete_old_segments(now_ms, self._ids[-1].offset) if dropped else []
        if not dropped:
            return None
        return partial(self._remove, dropped, retired)

    def _remove(self, dropped: list[OffsetAndEpoch], retired: list[RetiredSegment]) -> None:
        for segment in retired:
            segment.delete()
        for snapshot_id in dropped:
            self._disk.remove(f"{self._path}/{file_name(snapshot_id)}")
