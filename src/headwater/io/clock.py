"""The clock of the host.

State machines take `now` (float seconds, monotonic) as an argument; only drivers and handlers read
the clock. Wall time is used only for timestamps that leave the process, in whole milliseconds.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def wall_ms(self) -> int: ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    # Without a frame of Python: it is asked several times for each request.
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
