"""What a log has written and no flush has made durable yet, besides the segments themselves."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.io import Disk
from headwater.storage.flushing import FlushJob


class Unsynced:
    """Files (indexes, snapshots) and directories with new or changed names. A flush takes them
    all; if it fails, it gives them back."""

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
        """Those of a segment, without which it must be looked at after a crash."""
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

    def take(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """All files and folders, which the caller now answers for."""
        taken = tuple(self._files), tuple(self._folders)
        self._files.clear()
        self._folders.clear()
        return taken

    def take_indexes(self) -> tuple[int, ...]:
        """Whose indexes are among the files that are taken with them."""
        taken = tuple(self._indexes_waiting)
        self._indexes_waiting.clear()
        return taken

    def done(self, job: FlushJob) -> None:
        for made in job.indexes:
            self._indexes.pop(made, None)

    def give_back(self, job: FlushJob) -> None:
        self._indexes_waiting[:0] = job.indexes
        self._files[:0] = job.paths
        for folder in job.folders:
            self.add_folder(folder)

    def move(self, source: str, target: str) -> None:
        """The log's directory has another name now, which itself is not durable."""
        self._files = [target + file.removeprefix(source) for file in self._files]
        self._folders = [target, target.rpartition("/")[0]]
