"""Waiting for room in the producer's buffer: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """The line of those who await room. Nobody passes it: who comes while others wait, waits."""

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._line)

    async def turn(self, *, ahead: bool) -> None:
        """Until there may be room and it is our turn. `ahead`: we were first, and there was not
        enough; back to the head of the line."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if ahead:
            self._line.appendleft(future)
        else:
            self._line.append(future)
        try:
            await future
        except BaseException:
            if future in self._line:
                self._line.remove(future)
            elif future.done() and not future.cancelled():
                self.freed()  # it was our turn and we do not take it
            raise

    def freed(self) -> None:
        """Room has come free, or the one whose turn it was has taken what it needs."""
        while self._line:
            future = self._line.popleft()
            if not future.done():
                future.set_result(None)
                return

    def fail(self, error: BaseException) -> None:
        while self._line:
            future = self._line.popleft()
            if not future.done():
                future.set_exception(error)
