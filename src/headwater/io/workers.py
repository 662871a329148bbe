"""Worker threads for what blocks: fsync, cold reads, recovery, deletion of many files.

The event loop passes a plain function and awaits its result. The function must not touch anything
that the loop owns. The simulator's twin completes it at some later virtual time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    def run(self, work: Callable[[], T]) -> Awaitable[T]: ...

    def close(self) -> None: ...


def write_lock() -> AbstractContextManager[bool]:
    """Returns a lock for a file that both the loop and workers replace, held for one write. A
    thread that has to wait for it would have waited for the device anyway."""
    return threading.Lock()


class ThreadWorkers:
    """A small pool; threads start when first needed."""

    __slots__ = ("_pool",)

    def __init__(self, threads_max: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="headwater-worker")

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _do_nothing() -> None: ...


async def run_to_completion(
    workers: Workers, work: Callable[[], T], on_cancel: Callable[[], None] = _do_nothing
) -> T:
    """Runs work in a worker and returns its result. A task that is cancelled meanwhile calls
    `on_cancel` and stays until the work is done: nothing may close or replace the files it uses."""
    working = asyncio.ensure_future(workers.run(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        on_cancel()
        await asyncio.gather(working, return_exceptions=True)
        raise
    finally:
        del working  # it holds the exception that is raised, whose traceback holds this frame
