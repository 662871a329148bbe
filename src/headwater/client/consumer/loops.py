"""Loops over a consumer, record by record, out of slices."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from headwater._core import ConsumedRecord
from headwater.client.consumer.slices import Slice

# A slice is how much a loop gets before the event loop has its turn again: as many records as the
# user's code gets through in a few milliseconds.
_SLICE_RECORDS_MIN = 16
_SLICE_RECORDS_MAX = 512
_SLICE_SECONDS = 0.005


class Records:
    """What `async for` runs over.

    Not a generator: that is over for good once a call of it was cancelled, and would tell a user
    who asks again that there are no more records.
    """

    __slots__ = ("_began", "_next_slice", "_now", "_size", "_slice")

    def __init__(
        self, next_slice: Callable[[int], Awaitable[Slice | None]], now: Callable[[], float]
    ) -> None:
        self._next_slice = next_slice
        self._now = now
        self._slice: Slice | None = None
        self._began = 0.0
        self._size = _SLICE_RECORDS_MIN

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        current = self._slice
        if current is not None and not current.is_late:
            for record in current.iterator:
                return record
        while True:
            self._pace()
            self._slice = current = await self._next_slice(self._size)
            if current is None:
                raise StopAsyncIteration
            self._began = self._now()
            for record in current.iterator:
                return record

    def _pace(self) -> None:
        """The next slice is as long as the last one's pace allows."""
        if self._slice is None:
            return
        elapsed = self._now() - self._began
        if elapsed < _SLICE_SECONDS:
            self._size = min(self._size * 2, _SLICE_RECORDS_MAX)
        elif elapsed > 2 * _SLICE_SECONDS:
            self._size = max(self._size // 2, 1)
