"""Where the last batches of a log lie.

Readers at the end of a log ask for the offset after a batch that was just appended, and find it
here without a search.
"""

from __future__ import annotations

_REMEMBERED = 256  # in each of two generations


class RecentPlaces:
    """Positions in the active segment by base offset. Forgets the older half at a time, which is
    cheaper than one by one."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}

    def add(self, base_offset: int, position: int) -> None:
        if len(self._newer) >= _REMEMBERED:
            self._older = self._newer
            self._newer = {}
        self._newer[base_offset] = position

    def get(self, offset: int) -> int:
        """The position of the batch that begins at an offset, -1 if not known."""
        position = self._newer.get(offset, -1)
        return position if position >= 0 else self._older.get(offset, -1)

    def clear(self) -> None:
        """The active segment is another one, or was cut."""
        self._newer = {}
        self._older = {}
