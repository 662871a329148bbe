"""Topics that come into being because someone asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

_IN_FLIGHT_MAX = 1000


class AutoTopics:
    """Creates topics in the background, each once at a time; the client asks again anyway."""

    def __init__(self, create: Callable[[list[str]], Awaitable[None]]) -> None:
        self._create = create
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, names: Iterable[str]) -> None:
        wanted = [name for name in names if name not in self._under_way]
        room = _IN_FLIGHT_MAX - len(self._under_way)
        if not wanted or room <= 0:
            return
        wanted = wanted[:room]
        self._under_way.update(wanted)
        task = asyncio.ensure_future(self._run(wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, names: list[str]) -> None:
        try:
            await self._create(names)
        finally:
            self._under_way.difference_update(names)

    def stop(self) -> list[asyncio.Task[None]]:
        """Gives the tasks that end with it."""
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)
