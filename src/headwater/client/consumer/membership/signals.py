"""Waking those who wait when something about a membership has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal:
    def __init__(self) -> None:
        self.listener: Callable[[], None] | None = None
        self._event = asyncio.Event()

    def fire(self) -> None:
        """All who wait now go on, and the listener looks."""
        event, self._event = self._event, asyncio.Event()
        event.set()
        if self.listener is not None:
            self.listener()

    async def wait(self, seconds: float | None) -> bool:
        """Until the next `fire`; False if it took longer."""
        event = self._event
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True
