"""The compaction of a broker: by the clock, the dirtiest log first, the work in workers.

The loop chooses a log, makes a job for it, and puts what the worker has written in place, segment
by segment. The log stays in use meanwhile. If it is truncated, moved or deleted, the new segments
are discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.errors import ApiError
from headwater.io import Clock, Disk, Workers
from headwater.io.workers import run_to_completion
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.storage import Log, LogDirs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.storage.cleaner import CleaningJob, CleaningLimits, Dirty, Source
    from headwater.storage.segment import Segment

T = TypeVar("T")

_LOOKED_AT_ONCE = 64
_BACKOFF_SECONDS_MIN = 0.05  # the loop has other work: without a pause nothing else would run
_CHUNK_BYTES_MIN = 64 * 1024
_MEMORY_BYTES_MAX = 2**31 - 1  # for one cleaner, as in Kafka
_MEGABYTE = 1_000_000


class Cleaning:
    """`run` compacts by the clock, until it is cancelled; `clean` compacts one log now."""

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
        # By name and not by log: a topic may be deleted and created again while a worker still
        # uses files of the old one, and both have the same folder.
        self._busy: set[TopicPartition] = set()
        self._refused: set[TopicPartition] = set()  # logged once, until it succeeds again
        self._cleaners: list[asyncio.Task[None]] = []
        self._uncleanable: set[Log] = set()  # until the next start, as in Kafka

    async def run(self) -> None:
        """Keeps as many cleaners as configured, each with one log at a time."""
        cleaners = self._cleaners
        try:
            while True:
                config = self._config()
                await asyncio.sleep(max(config.log_cleaner_backoff_ms / 1000, _BACKOFF_SECONDS_MIN))
                for ended in [cleaner for cleaner in cleaners if cleaner.done()]:
                    cleaners.remove(ended)
                    ended.result()
                while len(cleaners) < self._config().log_cleaner_threads:
                    cleaners.append(asyncio.ensure_future(self._clean_while_dirty()))
        except (asyncio.CancelledError, Exception):
            for cleaner in cleaners:
                cleaner.cancel()
            await asyncio.gather(*cleaners, return_exceptions=True)
            raise

    async def _clean_while_dirty(self) -> None:
        failed: set[TopicPartition] = set()  # not again before the others
        while len(self._cleaners) <= self._config().log_cleaner_threads:
            partition = await self._dirtiest(failed)
            if partition is None:
                return
            if not await self.clean(partition):
                failed.add(partition.tp)

    async def _dirtiest(self, failed: Container[TopicPartition] = ()) -> Partition | None:
        """Returns the log that needs compaction most, if any does."""
        from headwater.storage.cleaner import (
            dirtiest,
        )  # imported late: most nodes compact nothing for a while

        found: dict[Dirty, Partition] = {}
        partitions = self._partitions.all()
        self._uncleanable &= {partition.log for partition in partitions}
        for count, partition in enumerate(partitions):
            if count % _LOOKED_AT_ONCE == _LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)  # lets others run
            log, tp = partition.log, partition.tp
            if not log.config.compact or tp in self._busy or tp in failed:
                continue
            if log not in self._uncleanable:
                with contextlib.suppress(ApiError, OSError):  # logged elsewhere
                    dirty = self._find_dirty(partition, partition.last_stable_offset)
                    found[dirty] = partition
        # Another cleaner may have chosen one meanwhile.
        chosen = dirtiest(d for d, partition in found.items() if partition.tp not in self._busy)
        return None if chosen is None else found[chosen]

    def uncleanable(self) -> tuple[Log, ...]:
        """Returns the logs whose compaction failed."""
        return tuple(self._uncleanable)

    async def clean(self, partition: Partition) -> bool:
        """Makes one round over one log; returns whether it succeeded."""
        self._busy.add(partition.tp)
        log = partition.log
        try:
            return await self._clean(partition)
        except Exception as error:
            # Compaction can wait for a start; the log and its readers cannot.
            self._uncleanable.add(log)
            self._lines.failure(f"{partition.tp} cannot be compacted", error)
            return False
        finally:
            self._busy.discard(partition.tp)

    def _find_dirty(self, partition: Partition, last_stable_offset: int) -> Dirty:
        from headwater.storage.cleaner import find_dirty

        log = partition.log
        log.health.check()
        return find_dirty(log, last_stable_offset=last_stable_offset, now_ms=self._clock.wall_ms())

    async def _clean(self, partition: Partition) -> bool:
        from headwater.storage.cleaner import CleaningAborted, Uncleanable

        log = partition.log
        try:
            stable = await self._make_durable(partition)
            return await self._clean_round(partition, stable)
        except CleaningAborted:
            return False
        except Uncleanable as reason:
            if not self._is_here(partition, log):
                return False
            self._uncleanable.add(log)
            self._lines.error(f"{partition.tp} cannot be compacted: {reason}")
            return False
        except ApiError as failure:
            if partition.tp not in self._refused:
                self._refused.add(partition.tp)
                self._lines.error(f"{partition.tp} was not compacted: {failure.message}")
            return False

    def _is_here(self, partition: Partition, log: Log) -> bool:
        return partition.log is log and self._log_dirs.get(partition.tp) is log

    async def _make_durable(self, partition: Partition) -> int:
        """Flushes and writes checkpoints first. A record is removed because a later one has its
        key: that one must not be lost then, nor the end of its transaction. And a start must know
        up to where there may be gaps before there are any. Returns the offset up to which
        everything is decided and durable."""
        log, stable = partition.log, partition.last_stable_offset
        log.end_swap()  # of a round that a full disk interrupted
        await partition.flush()
        await partition.flush_closed()
        stable = min(stable, log.trusted_end)
        await self._run(self._log_dirs.checkpoint_job().run)
        if log.cleaned_to is None and self._is_here(partition, log):
            log.mark_cleaned(log.start)
            await self._run(self._log_dirs.cleaned_job(log).run)
        # What was rolled meanwhile is above the recovery point that was just written.
        return min(stable, partition.last_stable_offset, log.trusted_end)

    async def _clean_round(self, partition: Partition, stable: int) -> bool:
        from headwater.storage.cleaner import CleaningAborted, CleaningJob

        log, config = partition.log, self._config()
        began = self._clock.monotonic()
        dirty = self._find_dirty(partition, stable)
        if not dirty.is_worth_it or not self._is_here(partition, log):
            return False
        job = CleaningJob(self._disk, dirty, limits=_limits(config), now_ms=self._clock.wall_ms())
        await self._run(job.learn, job.cancel)
        await self._pause(dirty.dirty_bytes, began)
        for group in job.groups:
            paced = self._clock.monotonic()
            segment = await self._run(partial(job.clean, group), job.cancel)
            if not (self._is_here(partition, log) and job.is_current and log.config.compact):
                await self._run(segment.remove)
                raise CleaningAborted
            await self._swap(partition, job, segment, group)
            await self._pause(sum(source.size for source in group) + segment.size, paced)
        if not job.is_current:
            raise CleaningAborted
        log.mark_cleaned(job.end)
        await self._run(self._log_dirs.cleaned_job(log).run)
        self._refused.discard(partition.tp)
        self._say(partition, job, self._clock.monotonic() - began)
        return True

    async def _swap(
        self, partition: Partition, job: CleaningJob, segment: Segment, group: Sequence[Source]
    ) -> None:
        from headwater.storage.cleaner import CleaningAborted

        log = partition.log
        bases = [source.base for source in group]
        if not log.begin_swap(segment, bases, truncations=job.truncations):
            await self._run(segment.remove)
            raise CleaningAborted
        try:
            await self._run(job.sync_names)
        except ApiError:
            log.abandon_swap()
            raise
        if not self._is_here(partition, log):
            raise CleaningAborted  # deleted, or moved
        retired = log.commit_swap()
        if retired is None:
            raise CleaningAborted
        for old in retired:
            self._delete_later(old.delete, log.config.file_delete_delay_ms / 1000)
        await self._run(job.sync_names)
        log.end_swap()
        await self._run(job.sync_names)

    async def _run(self, work: Callable[[], T], *on_cancel: Callable[[], None]) -> T:
        """Runs work in a worker to its end, even if the cleaner is stopped meanwhile."""
        return await run_to_completion(self._workers, work, *on_cancel)

    async def _pause(self, done_bytes: int, began: float) -> None:
        """Keeps to `log.cleaner.io.max.bytes.per.second` on average."""
        rate = self._config().log_cleaner_io_max_bytes_per_second
        due = done_bytes / rate if rate > 0 else 0.0
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
    from headwater.storage.cleaner import CleaningLimits

    cleaners = config.log_cleaner_threads
    return CleaningLimits(
        memory_bytes=min(config.log_cleaner_dedupe_buffer_size // cleaners, _MEMORY_BYTES_MAX),
        load_factor=config.log_cleaner_io_buffer_load_factor,
        chunk_bytes=max(config.log_cleaner_io_buffer_size // cleaners // 2, _CHUNK_BYTES_MIN),
    )
