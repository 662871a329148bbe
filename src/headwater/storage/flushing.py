"""Making a log durable: what to sync is decided on the loop, the waiting is done in a worker."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from headwater.io import Disk, File
from headwater.storage.checkpoints import CheckpointWrite
from headwater.storage.failures import Health


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Run it in a worker, then tell the log with `flushed`. Appends may go on meanwhile."""

    disk: Disk
    health: Health
    upto: int  # all below is durable once it has run
    truncations: int  # of the log when the job was made: a later one makes the job worthless
    files: tuple[File, ...]  # segments, held until they are synced
    paths: tuple[str, ...]  # indexes and snapshots of rolled segments
    epochs: CheckpointWrite | None  # the epoch checkpoint, if it changed
    folders: tuple[str, ...]  # directories with new names in them
    names: int  # how many changes of the logs' own names it has to see durable
    indexes: tuple[int, ...] = ()  # whose indexes are among the paths; the log's own numbers

    def run(self) -> None:
        """Blocks until the device has it all. A failure takes the directory offline: after a
        failed sync nobody knows what is on disk, and a second one proves nothing."""
        with self.health.errors():
            try:
                for file in self.files:
                    file.sync()
            finally:
                for file in self.files:
                    file.release()
            for path in self.paths:
                with contextlib.suppress(FileNotFoundError):  # retention was quicker
                    handle = self.disk.open(path)
                    try:
                        handle.sync()
                    finally:
                        handle.close()
            # A log that was deleted meanwhile has a directory of another name.
            for folder in self.folders:
                if folder == self.health.path:
                    self._sync_names()
                    continue
                with contextlib.suppress(FileNotFoundError):
                    self.disk.sync_dir(folder)
            if self.epochs is not None:
                with contextlib.suppress(FileNotFoundError):
                    self.epochs.run()

    def _sync_names(self) -> None:
        """The directory that all logs are in: what one job has made durable, others need not."""
        if self.health.names_synced < self.names:
            names = self.health.names
            self.disk.sync_dir(self.health.path)
            self.health.names_synced = names
