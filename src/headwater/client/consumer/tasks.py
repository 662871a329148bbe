"""The background work of one consumer, so that all of it ends with the consumer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.io.tasks import background_task

_log = logging.getLogger("headwater.client")


class Tasks:
    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed  # we are wrong: the user must not wait for what has ended
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = background_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the consumer's background work failed", exc_info=error)
            self._failed(error)

    async def cancel(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
