"""The durability of a log: how far it reaches, what is missing, and the job that a worker runs.

The loop decides what to sync; a worker waits for the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.io import Disk, File
from headwater.storage.checkpoints import CheckpointWrite
from headwater.storage.failures import Health, is_full
from headwater.storage.producer_state import Replay
from headwater.storage.retention import RetiredSegment


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Makes a log durable. Run it in a worker, then call `Log.flushed`. Appends may go on
    meanwhile."""

    disk: Disk
    health: Health
    upto: int  # all below is durable once it has run
    truncations: int  # when the job was made: a later one invalidates it
    files: tuple[File, ...]  # segments, held until they are synced
    paths: tuple[str, ...]  # indexes and snapshots of rolled segments
    epochs: CheckpointWrite | None  # the epoch checkpoint, if it changed
    folders: tuple[str, ...]  # directories with new names in them
    names: int  # new names of logs in the log directory that must be durable
    indexes: tuple[int, ...]  # whose indexes are among the paths; `DirtyFiles` has the numbers

    def run(self) -> None:
        """Blocks until everything is on the device. A failure takes the directory offline: after a
        failed sync the content of the disk is unknown, and a second sync proves nothing."""
        with self.health.errors():
            try:
                for file in self.files:
                    file.sync()
            finally:
                for file in self.files:
                    file.release()
            for path in self.paths:
                with contextlib.suppress(FileNotFoundError):  # retention has deleted it
                    handle = self.disk.open(path)
                    try:
                        handle.sync()
                    finally:
                        handle.close()
            # A log that was deleted meanwhile has a directory of another name.
            for folder in self.folders:
                if folder == self.health.path:
                    self.health.sync_names(self.disk, self.names)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    self.disk.sync_dir(folder)
            if self.epochs is not None:
                with contextlib.suppress(FileNotFoundError):
                    self.epochs.run()


@dataclass(slots=True)
class TruncationJob:
    """Makes a truncation durable and restores the producers' states. Run it in a worker, then call
    `Log.cut_ended`; nothing may be appended before. The truncated records must not come back behind
    what is appended next, and a truncated epoch must not make another replica truncate what took
    its place. The checkpoints of the directory follow: a recovery point above the new end would
    leave later appends unchecked (`LogDirs.ends_job`)."""

    disk: Disk
    health: Health
    truncations: int  # when the job was made
    retired: list[RetiredSegment]  # segments that were dropped whole
    replay: Replay
    file: File  # the active segment, held until it is synced
    folders: tuple[str, ...]
    epochs: CheckpointWrite | None
    epochs_failed: bool = False

    def run(self) -> None:
        with self.health.errors():
            try:
                self.replay.run()
                self.file.sync()
            finally:
                self.file.release()
            # A log that was deleted meanwhile has a directory of another name.
            for folder in self.folders:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.sync_dir(folder)
            self._write_epochs()

    def _write_epochs(self) -> None:
        if self.epochs is None:
            return
        try:
            self.epochs.run()
        except FileNotFoundError:
            pass
        except OSError as error:
            if not is_full(error):
                raise
            # The next flush writes them, and until then recovery believes the batches.
            self.epochs_failed = True


class FlushState:
    """The durable part of a log. `dirty` has what a flush must sync besides the segments."""

    __slots__ = ("_disk", "_health", "dirty", "last_flush_ms", "recovery_point", "truncations")

    def __init__(self, disk: Disk, health: Health, *, recovery_point: int, now_ms: int) -> None:
        self._disk = disk
        self._health = health
        self.dirty = DirtyFiles(disk)
        self.recovery_point = recovery_point  # all below is durable
        self.last_flush_ms = now_ms
        self.truncations = 0

    def job(self, upto: int, files: Iterable[File], epochs: CheckpointWrite | None) -> FlushJob:
        """Returns a job for these segments and everything that is dirty."""
        held = tuple(files)
        for file in held:
            file.hold()
        paths, folders, indexes = self.dirty.take()
        return FlushJob(
            disk=self._disk,
            health=self._health,
            upto=upto,
            truncations=self.truncations,
            files=held,
            paths=paths,
            epochs=epochs,
            folders=folders,
            names=self._health.names,
            indexes=indexes,
        )

    def done(self, job: FlushJob) -> None:
        self.dirty.synced(job)
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, job.upto)

    def failed(self, job: FlushJob) -> None:
        """Leaves the work of a failed job to the next one."""
        self.dirty.put_back(job)

    def checked(self, now_ms: int) -> None:
        """Restarts the interval of `flush.ms`."""
        self.last_flush_ms = now_ms

    def truncate(self, end: int) -> None:
        self.recovery_point = min(self.recovery_point, end)
        self.truncations += 1


class DirtyFiles:
    """Files (indexes, snapshots) and directories with new names that are not durable yet. A flush
    job takes them all; if it fails, they are put back."""

    __slots__ = ("_disk", "_files", "_folders", "_indexes", "_indexes_made", "_indexes_waiting")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: list[str] = []
        self._folders: list[str] = []
        self._indexes: dict[int, int] = {}  # the bases of segments whose indexes are not durable
        self._indexes_waiting: list[int] = []  # for a flush; the others are with one
        self._indexes_made = 0

    def __bool__(self) -> bool:
        return bool(self._files or self._folders)

    def add_file(self, path: str) -> None:
        self._files.append(path)

    def add_indexes(self, base: int, paths: Iterable[str]) -> None:
        """Adds the indexes of a segment. Until they are durable, a start after a crash must scan
        the segment."""
        for path in paths:
            self.add_file(path)
        self._indexes_made += 1
        self._indexes[self._indexes_made] = base
        self._indexes_waiting.append(self._indexes_made)

    @property
    def first_without_indexes(self) -> int | None:
        return min(self._indexes.values(), default=None)

    def add_folder(self, path: str) -> None:
        if path not in self._folders:
            self._folders.append(path)

    def sync_folders(self) -> None:
        """Makes all names durable now. Blocks on the device."""
        for folder in self._folders:
            self._disk.sync_dir(folder)
        self._folders.clear()

    def take_folders(self) -> tuple[str, ...]:
        """Returns and forgets the directories, for a job that syncs them."""
        taken = tuple(self._folders)
        self._folders.clear()
        return taken

    def take(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
        """Returns and forgets all files, folders, and the numbers of the indexes among the
        files."""
        taken = tuple(self._files), tuple(self._folders), tuple(self._indexes_waiting)
        self._files.clear()
        self._folders.clear()
        self._indexes_waiting.clear()
        return taken

    def synced(self, job: FlushJob) -> None:
        for made in job.indexes:
            self._indexes.pop(made, None)

    def put_back(self, job: FlushJob) -> None:
        self._indexes_waiting[:0] = job.indexes
        self._files[:0] = job.paths
        for folder in job.folders:
            self.add_folder(folder)

    def move(self, source: str, target: str) -> None:
        """Follows the log's directory to its new name, which itself is not durable."""
        self._files = [target + file.removeprefix(source) for file in self._files]
        self._folders = [target, target.rpartition("/")[0]]
