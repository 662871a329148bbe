"""The calls that wait for room in the producer's buffer: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headwater.client.errors import ClientClosed


class _Place:
    """A call's place in the line."""

    __slots__ = ("look",)

    def __init__(self) -> None:
        self.look: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class BufferWaiters:
    """The line of waiting calls. Only the first looks for room, and it stays first until it has
    taken it, so no call is overtaken, however little the others need."""

    def __init__(self) -> None:
        self._line: deque[_Place] = deque()
        self._closed: str | None = None  # why there will never be room again

    def __len__(self) -> int:
        return len(self._line)

    async def take(self, attempt: Callable[[], bool]) -> None:
        """Waits until the caller is first and `attempt`, called whenever memory was released,
        succeeds. A caller that joins an empty line has just found no room."""
        place = _Place()
        self._line.append(place)
        try:
            while True:
                await place.look
                if self._closed is not None:
                    raise ClientClosed(self._closed)
                place.look = asyncio.get_running_loop().create_future()
                if attempt():
                    return
        finally:
            self._line.remove(place)
            self.freed()  # there may be enough for the next one, too

    def freed(self) -> None:
        """Wakes the first waiter after memory was released."""
        if self._line and not self._line[0].look.done():
            self._line[0].look.set_result(None)

    def close(self, reason: str) -> None:
        """Fails all waiters, including one that was just woken: nobody would send what it added."""
        self._closed = reason
        for place in self._line:
            if not place.look.done():
                place.look.set_result(None)
