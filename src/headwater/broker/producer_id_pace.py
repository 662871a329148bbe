"""Limits the rate at which a user gets producer ids from one address.

Every id that is used leaves its traces in partitions for a day (`producer.id.expiration.ms`), so a
client that asks for one after the other would fill the memory of all brokers. Kafka has no limit
(KIP-936).
"""

from __future__ import annotations

from headwater.security.principal import Principal

BURST_SECONDS = 10.0  # ids for so long may be taken at once
WAIT_SECONDS_MAX = 10.0
_USERS_MAX = 10_000
_USERS_KEPT = 9_000


class ProducerIdPace:
    """For each user and address a bucket, as the time when it will be full again."""

    __slots__ = ("_full_at",)

    def __init__(self) -> None:
        self._full_at: dict[tuple[Principal, str], float] = {}

    def delay(
        self, principal: Principal, host: str, now: float, *, per_second: int
    ) -> float | None:
        """Takes an id from the bucket; returns for how long to wait with it. Returns None, and
        takes nothing, if that would be too long."""
        if per_second <= 0:
            return 0.0
        key = principal, host
        full_at = max(self._full_at.pop(key, now), now) + 1 / per_second
        delay = max(0.0, full_at - now - BURST_SECONDS)
        if delay > WAIT_SECONDS_MAX:
            self._full_at[key] = full_at - 1 / per_second
            return None
        if len(self._full_at) >= _USERS_MAX:
            self._forget(now)
        self._full_at[key] = full_at
        return delay

    def _forget(self, now: float) -> None:
        """Makes room: full buckets need not be known, and the oldest is full soonest. Makes it for
        many, since all of them are looked at."""
        known = [(key, at) for key, at in self._full_at.items() if at > now]
        self._full_at = dict(known[-_USERS_KEPT:])
