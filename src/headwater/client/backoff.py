"""Waiting between attempts: exponential backoff with jitter (KIP-580, KIP-144)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from headwater.io import Host

_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `first_ms` to `most_ms`; a fifth more or less, so that clients which failed
    together do not come back together."""

    first_ms: int
    most_ms: int

    def seconds(self, failures: int, random: Random) -> float:
        """Returns the wait after this many failures in a row, at least one."""
        assert failures > 0
        if not self.first_ms:
            return 0.0
        # Past some doublings the bound holds anyhow, and the numbers need not grow without end.
        ceiling = max(self.first_ms, self.most_ms)
        plain: int = min(self.first_ms << min(failures - 1, 31), ceiling)
        jittered = plain * random.uniform(1 - _JITTER, 1 + _JITTER)
        return min(jittered, ceiling) / 1000


class Retries:
    """The attempts of one operation that has a deadline.

    retries = cluster.retries(deadline)
    while True:
        try:
            return await attempt()
        except RetriableError:
            if not await retries.pause():
                raise
    """

    __slots__ = ("_backoff", "_deadline", "_host", "failures")

    def __init__(self, backoff: Backoff, host: Host, deadline: float) -> None:
        self.failures = 0
        self._backoff = backoff
        self._host = host
        self._deadline = deadline

    async def pause(self) -> bool:
        """Waits before the next attempt; returns False at once if the deadline comes first."""
        wait = self.next_wait()
        if wait is None:
            return False
        await asyncio.sleep(wait)
        return True

    def next_wait(self) -> float | None:
        """Counts a failure and returns the seconds to wait, or None if the deadline comes first."""
        self.failures += 1
        wait = self._backoff.seconds(self.failures, self._host.random)
        return None if self._host.clock.monotonic() + wait >= self._deadline else wait
