"""Compaction as a broker does it: by the clock, the dirtiest log first, the work in workers.

The loop chooses a log, makes a job of it, and puts what the worker has written in place, segment by
segment. The log is used as ever meanwhile. If it is cut, moved or deleted, what was written goes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.errors import ApiError
from headwater.io import Clock, Disk, Workers
from headwater.observability import Log as Lines
from headwater.storage import Log, LogDirs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.storage.cleaner import Dirty
    from headwater.storage.cleaner_job import CleaningJob, CleaningLimits, Source
    from headwater.storage.segment import Segment

T = TypeVar("T")

_LOOKED_AT_ONCE = 64
_CHUNK_BYTES_MIN = 64 * 1024
_MEMORY_BYTES_MAX = 2**31 - 1  # for one cleaner, as Kafka has it
_MEGABYTE = 1_000_000


class Cleaning:
    """`run` is one cleaner; there may be several, each with its own log at a time."""

    def __init__(
        self,
        config: Callable[[], NodeConfig],
        partitions: Partitions,
        log_dirs: LogDirs,
        disk: Disk,
        clock: Clock,
        workers: Workers,
        delete_later: Callable[[Callable[[], None], float], None],
        lines: Lines,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._disk = disk
        self._clock = clock
        self._workers = workers
        self._delete_later = delete_later
        self._lines = lines
        self._busy: set[Log] = set()
        self._uncleanable: set[Log] = set()  # until the next start, as Kafka has it

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._config().log_cleaner_backoff_ms / 1000)
            while await self.clean_dirtiest():
                pass

    async def clean_dirtiest(self) -> bool:
        """Compacts the log that needs it most. False if there was none, or if it did not work."""
        partition = await self._dirtiest()
        if partition is None:
            return False
        log = partition.log
        self._busy.add(log)
        try:
            return await self._clean(partition)
        finally:
            self._busy.discard(log)

    async def _dirtiest(self) -> Partition | None:
        from headwater.storage.cleaner import dirtiest  # most nodes compact nothing for a while

        found: dict[Dirty, Partition] = {}
        partitions = self._partitions.all()
        self._uncleanable &= {partition.log for partition in partitions}
        for count, partition in enumerate(partitions):
            if count % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)  # others may have their turn
            log = partition.log
            if log.config.compact and log not in self._busy | self._uncleanable:
                with contextlib.suppress(ApiError, OSError):  # it has been said elsewhere
                    found[self._look_at(partition)] = partition
        chosen = dirtiest(found)
        return None if chosen is None else found[chosen]

    def _look_at(self, partition: Partition) -> Dirty:
        from headwater.storage.cleaner import look_at

        partition.log.health.check()
        return look_at(
            partition.log,
            last_stable_offset=partition.last_stable_offset,
            now_ms=self._clock.wall_ms(),
        )

    async def _clean(self, partition: Partition) -> bool:
        from headwater.storage.cleaner_job import CleaningAborted, Uncleanable

        log = partition.log
        try:
            await self._make_durable(partition)
            return await self._clean_round(partition)
        except CleaningAborted:
            return False
        except Uncleanable as reason:
            if not self._is_here(partition, log):
                return False
            self._uncleanable.add(log)
            self._lines.error(f"{partition.tp} cannot be compacted: {reason}")
            return True
        except ApiError as failure:
            self._lines.error(f"{partition.tp} was not compacted: {failure.message}")
            return False

    def _is_here(self, partition: Partition, log: Log) -> bool:
        return partition.log is log and self._log_dirs.get(partition.tp) is log

    async def _make_durable(self, partition: Partition) -> None:
        """A record goes because a later one has its key: the later one must not be lost then. And
        a start must know up to where there may be gaps, before there are any."""
        log = partition.log
        log.end_swap()  # of a round that a full disk has ended
        base = log.segments[-1].base
        job = log.flush_job(base) if log.recovery_point < base else None
        if job is not None:
            try:
                await self._workers.run(job.run)
            except ApiError:
                log.not_flushed(job)
                raise
            log.flushed(job, self._clock.wall_ms())
        await self._workers.run(self._log_dirs.checkpoint_job().run)
        if log.cleaned_to is None and self._is_here(partition, log):
            log.cleaned_to = log.start
            await self._workers.run(self._log_dirs.cleaned_job(log).run)

    async def _clean_round(self, partition: Partition) -> bool:
        from headwater.storage.cleaner_job import CleaningAborted, CleaningJob

        log, config = partition.log, self._config()
        began = self._clock.monotonic()
        dirty = self._look_at(partition)
        if not dirty.is_worth_it or not self._is_here(partition, log):
            return False
        job = CleaningJob(self._disk, dirty, limits=_limits(config), now_ms=self._clock.wall_ms())
        await self._work(job, job.learn)
        await self._pause(dirty.dirty_bytes, began)
        for group in job.groups:
            paced = self._clock.monotonic()
            segment = await self._work(job, partial(job.clean, group))
            if not (self._is_here(partition, log) and job.is_current and log.config.compact):
                await self._workers.run(segment.remove)
                raise CleaningAborted
            await self._swap(partition, job, segment, group)
            await self._pause(sum(source.size for source in group) + segment.size, paced)
        log.cleaned_to = job.end
        await self._workers.run(self._log_dirs.cleaned_job(log).run)
        self._say(partition, job, self._clock.monotonic() - began)
        return True

    async def _swap(
        self, partition: Partition, job: CleaningJob, segment: Segment, group: Sequence[Source]
    ) -> None:
        from headwater.storage.cleaner_job import CleaningAborted

        log = partition.log
        bases = [source.base for source in group]
        if not log.begin_swap(segment, bases, truncations=job.truncations):
            await self._workers.run(segment.remove)
            raise CleaningAborted
        try:
            await self._work(job, job.sync_names)
        except ApiError:
            log.abandon_swap()
            raise
        retired = log.commit_swap()
        if retired is None:
            raise CleaningAborted
        for old in retired:
            self._delete_later(old.delete, log.config.file_delete_delay_ms / 1000)
        await self._work(job, job.sync_names)
        log.end_swap()
        await self._work(job, job.sync_names)

    async def _work(self, job: CleaningJob, work: Callable[[], T]) -> T:
        """In a worker, which a cancelled task does not leave behind: its files close after it."""
        working = asyncio.ensure_future(self._workers.run(work))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            job.cancelled = True
            await asyncio.gather(working, return_exceptions=True)
            raise

    async def _pause(self, done_bytes: int, began: float) -> None:
        """`log.cleaner.io.max.bytes.per.second`, kept on average."""
        due = done_bytes / self._config().log_cleaner_io_max_bytes_per_second
        elapsed = self._clock.monotonic() - began
        if due > elapsed:
            await asyncio.sleep(due - elapsed)

    def _say(self, partition: Partition, job: CleaningJob, seconds: float) -> None:
        before, after = job.bytes_read / _MEGABYTE, job.bytes_written / _MEGABYTE
        self._lines.info(
            f"{partition.tp} compacted up to offset {job.end}: {before:.1f} MB to {after:.1f} MB, "
            f"{job.records_read} records to {job.records_kept}, in {seconds:.1f} s"
        )
        if job.keyless:
            self._lines.warn(
                f"{partition.tp} had {job.keyless} records without a key; compaction drops them"
            )


def _limits(config: NodeConfig) -> CleaningLimits:
    from headwater.storage.cleaner_job import CleaningLimits

    cleaners = config.log_cleaner_threads
    return CleaningLimits(
        memory_bytes=min(config.log_cleaner_dedupe_buffer_size // cleaners, _MEMORY_BYTES_MAX),
        load_factor=config.log_cleaner_io_buffer_load_factor,
        chunk_bytes=max(config.log_cleaner_io_buffer_size // cleaners // 2, _CHUNK_BYTES_MIN),
    )
