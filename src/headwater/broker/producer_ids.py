"""Producer ids: blocks from the controller, handed out one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Block = tuple[int, int]
"""The first id of a block, and how many there are."""


class ProducerIds:
    """Ids are never given twice: what is left of a block at a stop is simply lost."""

    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0

    async def next(self) -> int:
        while self._next >= self._end:
            first, count = await self._allocate()
            # Others may have waited too; the block that came last wins, the rest is skipped.
            self._next, self._end = first, first + count
        self._next += 1
        return self._next - 1
