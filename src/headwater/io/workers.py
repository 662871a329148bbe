"""Threads for what blocks: fsync, cold reads, recovery, deletion of many files.

The event loop hands a plain function over and awaits its result. The function must touch nothing
that the loop owns. The simulator's twin completes it at some later virtual moment.
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
    """A lock for a file that both the loop and workers replace, held for one write. Whoever finds
    it taken would have waited for the device anyway."""
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
