"""The pace of new connections."""

from __future__ import annotations

_BURST_SECONDS = 1.0


class Pace:
    """A bucket of tokens, full at first: one second's connections may come at once."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left: float | None = None
        self._since = 0.0

    def count(self, now: float, per_second: int) -> float:
        """Counts one event; returns for how many seconds there should be no other."""
        most = per_second * _BURST_SECONDS
        left = most if self._left is None else self._left + (now - self._since) * per_second
        self._left = min(left, most) - 1
        self._since = now
        return max(0.0, (1 - self._left) / per_second) if self._left < 1 else 0.0
