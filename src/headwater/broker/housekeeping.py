"""The periodic work of a broker: retention, flushes, checkpoints, expiry of producers.

One task runs whatever is due next. Each chore looks at all partitions, does what is quick on the
loop and gives the rest to workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.errors import ApiError
from headwater.io import Clock, Workers
from headwater.io.workers import run_to_completion
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.storage import FullDiskWarnings, LogDirs, Reserve


class _Chore(NamedTuple):
    name: str
    every_seconds: float
    run: Callable[[], Awaitable[None]]


class Housekeeping:
    def __init__(
        self,
        config: NodeConfig,
        partitions: Partitions,
        log_dirs: LogDirs,
        clock: Clock,
        workers: Workers,
        lines: Lines,
        reserve: Reserve,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._clock = clock
        self._workers = workers
        self._lines = lines
        self._reserve = reserve
        self._numbers = count()
        # By number: a timer that refers to itself would keep what it deletes alive.
        self._deletions: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._full = FullDiskWarnings()
        self._written_marks: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        config = self._config
        chores = [
            _Chore(
                "retention", config.log_retention_check_interval_ms / 1000, self.delete_old_segments
            ),
            _Chore(
                "checkpoints",
                config.log_flush_offset_checkpoint_interval_ms / 1000,
                self.write_checkpoints,
            ),
            _Chore(
                "high watermarks",
                config.replica_high_watermark_checkpoint_interval_ms / 1000,
                self.write_high_watermarks,
            ),
            _Chore(
                "producers",
                config.producer_id_expiration_check_interval_ms / 1000,
                self.expire_producers,
            ),
            _Chore("flush", 1.0, self.flush_due),
            _Chore("the reserve", 1.0, self.keep_reserve),
            _Chore("full directories", 1.0, self.say_full),
            _Chore("deleted logs", 1.0, self.delete_logs),
        ]
        now = self._clock.monotonic()
        due = {chore: now + chore.every_seconds for chore in chores}
        while True:
            chore = min(chores, key=due.__getitem__)
            await asyncio.sleep(max(0.0, due[chore] - self._clock.monotonic()))
            try:
                await chore.run()
            except (ApiError, OSError) as failure:
                self._lines.error(f"{chore.name}: {failure}")
            due[chore] = self._clock.monotonic() + chore.every_seconds

    async def delete_old_segments(self) -> None:
        now_ms = self._clock.wall_ms()
        for partition in self._partitions.all():
            try:
                if self._is_here(partition):
                    await partition.flush_closed()
                if not self._is_here(partition):
                    continue
                retired = partition.log.delete_old_segments(now_ms, partition.high_watermark)
            except ApiError as failure:
                self._lines.error(f"{partition.tp}: {failure.message}")
                continue
            if not retired:
                continue
            partition.changed()
            self._lines.debug(
                f"{partition.tp}: {len(retired)} old segments deleted, "
                f"the log starts at {partition.log.start}"
            )
            for segment in retired:
                self.delete_later(segment.delete, partition.log.config.file_delete_delay_ms / 1000)
            await asyncio.sleep(0)  # lets others run between two partitions

    def _is_here(self, partition: Partition) -> bool:
        """Returns whether a log still exists. It may have been deleted since a chore began, and to
        miss its files would take the directory offline."""
        return self._log_dirs.get(partition.tp) is partition.log

    def delete_later(self, delete: Callable[[], None], seconds: float) -> None:
        """Runs the deletion in a worker, after a delay."""
        number = next(self._numbers)
        self._deletions[number] = asyncio.get_running_loop().call_later(
            seconds, self._start_deletion, number, delete
        )

    def _start_deletion(self, number: int, delete: Callable[[], None]) -> None:
        del self._deletions[number]
        task = asyncio.ensure_future(self._delete(delete))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, delete: Callable[[], None]) -> None:
        try:
            await self._workers.run(delete)
        except (ApiError, OSError) as failure:
            self._lines.error(f"a retired segment cannot be deleted: {failure}")

    async def delete_logs(self) -> None:
        """Schedules the removal of deleted logs, after the delay."""
        for job in self._log_dirs.take_deletions():
            self.delete_later(
                job.run, self._config.topic_defaults.config().file_delete_delay_ms / 1000
            )

    async def write_checkpoints(self) -> None:
        """Writes recovery points and log starts. Flushes rolled segments first, so that a start
        after a crash has only the newest ones to scan."""
        for partition in self._partitions.all():
            if self._is_here(partition):
                await partition.flush_closed()
        await run_to_completion(self._workers, self._log_dirs.checkpoint_job().run)

    async def write_high_watermarks(self) -> None:
        marks = {partition.tp: partition.high_watermark for partition in self._partitions.all()}
        if marks != self._written_marks:
            self._written_marks = marks
            await run_to_completion(self._workers, self._log_dirs.checkpoint_job(marks).run)

    async def expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for partition in self._partitions.all():
            partition.log.expire_producers(now_ms, self._config.producer_id_expiration_ms)

    async def say_full(self) -> None:
        healths = [directory.health for directory in self._log_dirs.directories]
        for line in self._full.due(healths, self._clock.monotonic()):
            self._lines.error(line)

    async def keep_reserve(self) -> None:
        if not self._reserve.is_held and self._reserve.hold():
            self._lines.info("disk space is available again: clients' records are accepted")

    def on_full(self) -> bool:
        """Releases the reserve for a metadata log that found no space; returns whether there was
        one."""
        if not self._reserve.release():
            return False
        self._lines.error("the disk is full: clients' records are refused until space is freed")
        return True

    async def flush_due(self) -> None:
        """Flushes what has been unflushed for `flush.ms`."""
        now_ms = self._clock.wall_ms()
        for partition in self._partitions.all():
            log = partition.log
            if log.is_flush_due(now_ms) and self._is_here(partition):
                await partition.flush()
                log.flush_checked(now_ms)

    def stop(self) -> list[asyncio.Task[None]]:
        """Cancels pending deletions, which the next start resumes; returns the tasks that end by
        themselves."""
        for handle in self._deletions.values():
            handle.cancel()
        return list(self._tasks)
