"""Periodic work of a broker."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from headwater.broker.housekeeping import Housekeeping
from headwater.broker.partition import Partition
from headwater.io import Host
from headwater.io.workers import ThreadWorkers
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.storage import LogDirs
from tests.support.logs import NOW, TOPIC_ID, append, batch, settings


class Deletion:
    def __init__(self) -> None:
        self.has_run = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def run(self) -> None:
        self._loop.call_soon_threadsafe(self.has_run.set)


def housekeeping(workers: ThreadWorkers) -> Housekeeping:
    nothing: Any = None
    return Housekeeping(nothing, nothing, nothing, nothing, workers, nothing, nothing)


def test_a_deletion_is_forgotten_once_it_has_run() -> None:
    """It knows the log, and the log has files open."""

    async def story() -> None:
        workers = ThreadWorkers(1)
        keeping = housekeeping(workers)
        deletion = Deletion()
        forgotten = weakref.ref(deletion)
        keeping.delete_later(deletion.run, 0.0)
        await deletion.has_run.wait()
        await asyncio.gather(*keeping.stop())
        workers.close()
        del deletion
        await asyncio.sleep(0)
        assert forgotten() is None

    gc.collect()
    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()


def test_a_log_that_was_deleted_since_a_chore_began_takes_no_directory_offline() -> None:
    async def story() -> None:
        host, tp = Host.in_memory(), TopicPartition("t", 0)
        dirs = LogDirs.open(
            host.disk,
            ["/data"],
            node_id=1,
            clock=host.clock,
            new_id=host.random_id,
            cluster_id="c",
        )
        log = dirs.create(tp, TOPIC_ID, settings(retention_ms=1))
        append(log, batch(b"a"))
        log.roll(NOW)
        append(log, batch(b"b"))
        partition = Partition(tp, TOPIC_ID, log, host.workers, log.end)
        partitions: Any = _Snapshot(partition)
        lines: list[str] = []
        nothing: Any = None
        keeping = Housekeeping(
            nothing,
            partitions,
            dirs,
            host.clock,
            host.workers,
            Lines(host.clock, lines.append),
            nothing,
        )
        dirs.delete(tp).run()
        await keeping.delete_old_segments()
        await keeping.write_checkpoints()
        assert dirs.offline() == []
        assert lines == []

    asyncio.run(story())


class _Snapshot:
    """The partitions that there were when a chore began."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def all(self) -> list[Partition]:
        return [self._partition]
