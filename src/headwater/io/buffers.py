"""Receive buffers, lent to connections while they hold unserved bytes.

An idle connection has no buffer: with 64 KiB each, ten thousand clients that wait for records would
cost 650 MB. A connection takes a buffer when there is something to read and returns it when all of
it is served. The free list is a stack, so a busy node receives into the same few buffers, which
stay in the processor's cache.

Each buffer is a mapping of its own. The allocator of the C library would keep the memory of a
thousand buffers forever if something small was allocated behind them, and it would take 64 KiB
for a peer that has sent ten bytes.
"""

from __future__ import annotations

import mmap


class BufferPool:
    """A bounded free list of buffers of one size.

    Threads may share it: each operation on the list is atomic, and a buffer that was taken has one
    owner.
    """

    __slots__ = ("_free", "_kept_max", "_owned", "size")

    def __init__(self, size: int, *, kept_max: int) -> None:
        self.size = size
        self._kept_max = kept_max
        self._free: list[memoryview] = []
        self._owned = 0  # buffers that exist, lent or free

    @property
    def lent(self) -> int:
        """The number of buffers that are in use; not exact while several threads use the pool."""
        return self._owned - len(self._free)

    def take(self) -> memoryview:
        try:
            return self._free.pop()
        except IndexError:
            self._owned += 1
            return memoryview(mmap.mmap(-1, self.size))

    def give_back(self, buffer: memoryview) -> None:
        """Returns a buffer to the pool; no view of it may be used afterwards."""
        if len(self._free) < self._kept_max:
            self._free.append(buffer)
        else:
            self._owned -= 1


RECEIVE_BUFFERS = BufferPool(64 * 1024, kept_max=16)
