"""The checkpoints of the log directories, written by whoever has something to say, one at a time.

Two writers at once would share a temporary file, and one that was late would put back what the
other had moved on from: a recovery point that falls behind a gap that compaction left makes the
next start take the gap for a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from headwater.io import Workers
from headwater.io.workers import run_to_completion
from headwater.model import TopicPartition
from headwater.storage import Log, LogDirs
from headwater.storage.log_dirs import CheckpointJob


class Checkpoints:
    def __init__(self, log_dirs: LogDirs, workers: Workers) -> None:
        self._log_dirs = log_dirs
        self._workers = workers
        self._turn = asyncio.Lock()

    async def write(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """How far each log is durable and where it starts; high watermarks, if they are given."""
        await self._write(lambda: self._log_dirs.checkpoint_job(high_watermarks))

    async def write_cleaned(self, log: Log) -> None:
        """How far the logs are compacted that share the directory of this one."""
        await self._write(lambda: self._log_dirs.cleaned_job(log))

    async def _write(self, make_job: Callable[[], CheckpointJob]) -> None:
        async with self._turn:
            await run_to_completion(self._workers, make_job().run)
