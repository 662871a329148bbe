"""Moves replicas to another log directory of this broker (KIP-113).

A log stays in use while it moves: a copy grows beside it in a directory whose name ends in
`-future`, until, in one turn of the loop, it has all that the log has and replaces it. A move
survives a restart and goes on from what the copy has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headwater.errors import ApiError
from headwater.io import Clock, Workers
from headwater.observability import Log as Lines
from headwater.storage import Log, LogDirs

if TYPE_CHECKING:
    from headwater.broker.partition import Partition
    from headwater.broker.partitions import Partitions
    from headwater.model import TopicPartition
    from headwater.storage.log_dirs import LogDirectory

_COPY_BYTES = 1024 * 1024
_BASE_OFFSET_BYTES = 8


class LogMoves:
    """The moves under way, one for each partition at most."""

    def __init__(self, log_dirs: LogDirs, clock: Clock, workers: Workers, lines: Lines) -> None:
        self._log_dirs = log_dirs
        self._clock = clock
        self._workers = workers
        self._lines = lines
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self.on_moved: Callable[[TopicPartition], None] = lambda tp: None

    def start(self, partition: Partition, directory: LogDirectory) -> None:
        """Moves the replica to this directory. Naming the directory where it is ends a move to
        another."""
        tp, log_dirs = partition.tp, self._log_dirs
        future = log_dirs.future(tp)
        if future is not None:
            if log_dirs.directory_of(future) is directory:
                return
            self._cancel(tp)
            log_dirs.cancel_move(tp)
        if log_dirs.directory_of(partition.log) is not directory:
            self._go(partition, log_dirs.start_move(tp, directory.path))

    def resume(self, partitions: Partitions) -> None:
        """Resumes the moves that the last run did not finish."""
        for partition in partitions.all():
            future = self._log_dirs.future(partition.tp)
            if future is not None:
                self._go(partition, future)

    def stop(self) -> list[asyncio.Task[None]]:
        """Cancels all moves; returns their tasks."""
        ending = list(self._tasks.values())
        for tp in tuple(self._tasks):
            self._cancel(tp)
        return ending

    def _cancel(self, tp: TopicPartition) -> None:
        task = self._tasks.pop(tp, None)
        if task is not None:
            task.cancel()

    def _go(self, partition: Partition, future: Log) -> None:
        task = asyncio.ensure_future(self._run(partition, future))
        self._tasks[partition.tp] = task
        task.add_done_callback(lambda done: self._done(partition.tp, done))

    def _done(self, tp: TopicPartition, task: asyncio.Task[None]) -> None:
        if self._tasks.get(tp) is task:
            del self._tasks[tp]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lines.failure(f"the move of {tp} failed", error)

    async def _run(self, partition: Partition, future: Log) -> None:
        tp, log_dirs = partition.tp, self._log_dirs
        is_flushed = False
        try:
            while log_dirs.future(tp) is future and log_dirs.get(tp) is partition.log:
                if await self._copy(partition.log, future) or not self._is_under_way(future):
                    continue
                if not is_flushed:
                    await self._flush(future)
                    is_flushed = True
                elif partition.is_flushing:
                    await partition.flush()
                else:
                    self._swap(partition, future)
        except (ApiError, OSError) as failure:
            self._lines.error(f"{tp} cannot be moved: {failure}")

    def _swap(self, partition: Partition, future: Log) -> None:
        """Replaces the log. There is no await in here: nothing may append to the old log
        meanwhile."""
        log = partition.log
        assert future.end == log.end, f"{partition.tp} is at {future.end} of {log.end}"
        if future.recovery_point < log.recovery_point:
            # What was durable must stay so. It is little, as all but the last moments was synced in
            # a worker, which would never catch up with appends.
            job = future.flush_job()
            if job is not None:
                job.run()
                future.flushed(job)
        future.configure(log.config)
        future.delete_records_before(log.start)
        for epoch, start in log.epochs.entries:
            if epoch > future.latest_epoch:  # one without records yet
                future.assign_epoch(epoch, start)
        partition.replace_log(self._log_dirs.finish_move(partition.tp))
        self.on_moved(partition.tp)
        self._lines.info(f"{partition.tp} moved to {self._log_dirs.directory_of(future).path}")

    async def _copy(self, log: Log, future: Log) -> bool:
        """Copies one piece; returns whether there was one."""
        offset = future.end
        if not log.start <= offset <= log.end:
            # A new copy, or one that retention or truncation has overtaken, begins anew.
            await self._begin(log, future)
            if not self._is_under_way(future):
                return False
            offset = log.start
        found = log.read(offset, bytes_max=_COPY_BYTES, upto=log.end)
        if found.slice is None:
            return False
        data = await self._workers.run(partial(log.load, found.slice))
        found.slice.close()
        if not self._is_under_way(future):
            return False
        future.append_as_follower(data, now_ms=self._clock.wall_ms())
        return True

    def _is_under_way(self, future: Log) -> bool:
        """Returns whether the move goes on, after a wait. The files of a deleted log may be gone,
        and to miss them would take the directory offline."""
        return self._log_dirs.future(future.tp) is future

    async def _begin(self, log: Log, future: Log) -> None:
        """Makes the copy begin at the first batch, which may begin before the start of the log,
        with records that were deleted."""
        found = log.read(log.start, bytes_max=1, upto=log.end)
        base = log.end
        if found.slice is not None:
            head = await self._workers.run(partial(log.load, found.slice))
            found.slice.close()
            base = int.from_bytes(head[:_BASE_OFFSET_BYTES], "big")
        if future.end != base and self._is_under_way(future):
            for segment in future.truncate_and_start_at(base):
                await self._workers.run(segment.delete)

    async def _flush(self, future: Log) -> None:
        job = future.flush_job()
        if job is not None:
            await self._workers.run(job.run)
            future.flushed(job)
