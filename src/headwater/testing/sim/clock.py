"""The clock of a simulated machine."""

from __future__ import annotations

from headwater.testing.sim.loop import SimLoop

_EPOCH_MS = 1_750_000_000_000


class SimClock:
    """Monotonic time is the loop's; wall time stands apart from it by a skew that may change, and
    runs faster or slower by a drift."""

    __slots__ = ("_loop", "drift", "skew_ms")

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        self.drift = 0.0

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.skew_ms + int(self._loop.time() * 1000 * (1.0 + self.drift))
