"""What a log has written and no flush has made durable yet, besides the segments themselves."""

from __future__ import annotations

from headwater.io import Disk
from headwater.storage.flushing import FlushJob


class Unsynced:
    """Files (indexes, snapshots) and directories with new or changed names. A flush takes them
    all; if it fails, it gives them back."""

    __slots__ = ("_disk", "_files", "_folders")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: list[str] = []
        self._folders: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._files or self._folders)

    def add_file(self, path: str) -> None:
        self._files.append(path)

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

    def give_back(self, job: FlushJob) -> None:
        self._files[:0] = job.paths
        for folder in job.folders:
            self.add_folder(folder)

    def move(self, source: str, target: str) -> None:
        """The log's directory has another name now, which itself is not durable."""
        self._files = [target + file.removeprefix(source) for file in self._files]
        self._folders = [target, target.rpartition("/")[0]]
