"""What a broker does by the clock."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from headwater.broker.housekeeping import Housekeeping
from headwater.io.workers import ThreadWorkers


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
