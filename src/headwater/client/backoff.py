"""How long to wait before the next try: exponential, with jitter (KIP-580, KIP-144)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `first_ms` to `most_ms`; a fifth more or less, so that clients which failed
    together do not come back together."""

    first_ms: int
    most_ms: int

    def seconds(self, failures: int, random: Random) -> float:
        """The wait after so many failures in a row, of which there is at least one."""
        assert failures > 0
        if not self.first_ms:
            return 0.0
        # Past some doublings the bound holds anyhow, and the numbers need not grow without end.
        ceiling = max(self.first_ms, self.most_ms)
        plain: int = min(self.first_ms << min(failures - 1, 31), ceiling)
        jittered = plain * random.uniform(1 - _JITTER, 1 + _JITTER)
        return min(jittered, ceiling) / 1000
