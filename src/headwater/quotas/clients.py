"""The quotas of all clients of a node: which apply to whom, and what each of them has taken.

A quota has a meter for each client that it is for: the quota of a user is shared by all clients of
the user, and that of a client id by all who call themselves so, while of a default each user or
client id has its own. Meters that say nothing any more are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from headwater.quotas.entities import (
    CLIENT_ID,
    CONNECTION,
    FETCH,
    IP,
    MUTATION,
    PRODUCE,
    REQUEST,
    USER,
    Entity,
    canonical_ip,
)
from headwater.quotas.rates import Bucket, Meter, Windows

METERS_MAX = 10_000
_SWEEP_SECONDS = 30.0

Quotas = Mapping[Entity, Mapping[str, float]]

_OF_CLIENTS = frozenset({PRODUCE, FETCH, REQUEST, MUTATION})
_PERCENT = 100.0


class Subject(NamedTuple):
    """Whose meter it is; None where a quota does not tell users, or client ids, apart."""

    user: str | None
    client_id: str | None


class Quota(NamedTuple):
    value: float
    subject: Subject


def find_quota(quotas: Quotas, key: str, user: str, client_id: str) -> Quota | None:
    """Returns the quota that applies to a client: the most specific of Kafka's eight levels."""
    both, of_user, of_client = (
        Subject(user, client_id),
        Subject(user, None),
        Subject(None, client_id),
    )
    levels: tuple[tuple[Entity, Subject], ...] = (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    )
    for entity, subject in levels:
        found = quotas.get(entity)
        if found is not None and key in found:
            return Quota(found[key], subject)
    return None


class Limits(NamedTuple):
    """The meters of one client; None where no quota applies."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None  # in seconds of the loop's time
    mutation: Bucket | None


NO_LIMITS = Limits(None, None, None, None)


class Throttled:
    """Counts how often and for how long clients had to wait because of one kind of quota."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0


class Used(NamedTuple):
    """The usage of a quota by one client, or by a group of them."""

    key: str
    subject: Subject
    bound: float  # for each second; a percentage for request_percentage
    rate: float | None  # what was taken each second, but of controller_mutation_rate
    tokens: float | None  # what is left of controller_mutation_rate
    wait_seconds: float  # the mean of the last minute's waits


_Key = tuple[str, Subject]


class ClientQuotas:
    def __init__(self, windows: Windows, mutation_windows: Windows) -> None:
        self.is_on = False  # whether there is any quota of clients
        self.limits_addresses = False
        # What has been held back so far, by the name of the quota.
        self.throttled = {
            key: Throttled() for key in (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION)
        }
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._quotas: Quotas = {}
        self._limits: dict[tuple[str, str], Limits | None] = {}  # by user and client id
        self._meters: dict[_Key, Meter] = {}  # the oldest first
        self._buckets: dict[Subject, Bucket] = {}
        self._address_rates: dict[str | None, float] = {}
        self._addresses: dict[str, Meter] = {}
        self._next_sweep = 0.0

    @property
    def request_wait_max(self) -> float:
        """The longest wait because of request_percentage, as in Kafka: a client whose requests are
        expensive is heard at least once in each window."""
        return self._windows.seconds

    def follow(self, quotas: Quotas) -> None:
        """Takes the quotas as they are now. What clients have taken so far counts on."""
        self._quotas = quotas
        self._limits.clear()
        self.is_on = any(not _OF_CLIENTS.isdisjoint(found) for found in quotas.values())
        self._address_rates = {}
        for entity, found in quotas.items():
            if CONNECTION in found and len(entity) == 1 and entity[0][0] == IP:
                name = entity[0][1]
                self._address_rates[name and (canonical_ip(name) or name)] = found[CONNECTION]
        self.limits_addresses = bool(self._address_rates)
        if not self.is_on:
            self._meters.clear()
            self._buckets.clear()
        if not self.limits_addresses:
            self._addresses.clear()

    # Clients

    def limits_of(self, user: str, client_id: str, now: float) -> Limits | None:
        """Returns what applies to a client, None if it may take what it wants."""
        try:
            return self._limits[user, client_id]
        except KeyError:
            pass
        if len(self._limits) >= METERS_MAX:
            self._limits.clear()
        limits = Limits(
            self._meter(PRODUCE, user, client_id, now),
            self._meter(FETCH, user, client_id, now),
            self._meter(REQUEST, user, client_id, now),
            self._bucket(user, client_id, now),
        )
        found = None if limits == NO_LIMITS else limits
        self._limits[user, client_id] = found
        return found

    def _meter(self, key: str, user: str, client_id: str, now: float) -> Meter | None:
        quota = find_quota(self._quotas, key, user, client_id)
        if quota is None:
            return None
        bound = quota.value / _PERCENT if key == REQUEST else quota.value
        meter = self._meters.get((key, quota.subject))
        if meter is None:
            self._make_room(self._meters, now)
            # Each connection is heard from time to time, whatever is due: many of them could
            # make a debt of loop time that nobody would live to see paid.
            most = self._windows.number * self._windows.seconds if key == REQUEST else inf
            meter = Meter(bound, self._windows, debt_seconds_max=most)
            self._meters[key, quota.subject] = meter
        elif meter.bound != bound:
            meter.rebind(bound, now)
        return meter

    def _bucket(self, user: str, client_id: str, now: float) -> Bucket | None:
        quota = find_quota(self._quotas, MUTATION, user, client_id)
        if quota is None:
            return None
        bucket = self._buckets.get(quota.subject)
        if bucket is None:
            self._make_room(self._buckets, now)
            bucket = Bucket(quota.value, self._mutation_windows, now)
            self._buckets[quota.subject] = bucket
        elif bucket.bound != quota.value:
            bucket.rebind(quota.value, now)
        return bucket

    # Addresses

    def admit(self, host: str, now: float) -> float:
        """Counts a new connection and returns 0; or returns for how many seconds to keep it
        waiting before it is closed (KIP-612)."""
        ip = canonical_ip(host) or host
        bound = self._address_rates.get(ip, self._address_rates.get(None))
        if bound is None:
            return 0.0
        meter = self._addresses.get(ip)
        if meter is None:
            self._make_room(self._addresses, now)
            meter = self._addresses[ip] = Meter(bound, self._windows)
        elif meter.bound != bound:
            meter.rebind(bound, now)
        wait = min(meter.offer(1.0, now), self._windows.seconds)
        if wait > 0:
            self.note(CONNECTION, wait, meter, now)
        return wait

    # Bounds

    def _make_room(self, meters: dict[Any, Any], now: float) -> None:
        """Drops meters that say nothing, from time to time, and the oldest if there are still too
        many: names come from clients."""
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_SECONDS
            self.expire(now)
        if len(meters) >= METERS_MAX:
            del meters[next(iter(meters))]
            self._limits.clear()

    def expire(self, now: float) -> None:
        """Drops the meters that say nothing any more."""
        every: tuple[dict[Any, Any], ...] = (self._meters, self._buckets, self._addresses)
        for meters in every:
            idle = [key for key, meter in meters.items() if meter.is_idle(now)]
            for key in idle:
                del meters[key]
            if idle:
                self._limits.clear()

    # What operators see

    def note(self, key: str, seconds: float, limit: Meter | Bucket | None, now: float) -> None:
        """Notes that a client has to wait, because of one of its limits."""
        throttled = self.throttled[key]
        throttled.count += 1
        throttled.seconds += seconds
        if limit is not None:
            limit.waits.note(seconds, now)

    def used(self, now: float) -> Iterator[Used | None]:
        """Yields what clients take of their quotas; None for a meter whose quota is gone."""
        for (key, subject), meter in tuple(self._meters.items()):
            bound = self._quota_of(key, subject)
            if bound is None:
                yield None
                continue
            rate = meter.rate(now) * (_PERCENT if key == REQUEST else 1.0)
            yield Used(key, subject, bound, rate, None, meter.waits.mean(now))
        for subject, bucket in tuple(self._buckets.items()):
            bound = self._quota_of(MUTATION, subject)
            if bound is None:
                yield None
                continue
            waits = bucket.waits.mean(now)
            yield Used(MUTATION, subject, bound, None, bucket.tokens(now), waits)

    def _quota_of(self, key: str, subject: Subject) -> float | None:
        """Returns the quota of a meter, which follows a change only when its client asks for
        something; None if it is gone, or if another one goes before it."""
        user, client_id = subject
        if user is not None and client_id is not None:
            quota = find_quota(self._quotas, key, user, client_id)
            return quota.value if quota is not None and quota.subject == subject else None
        kind, name = (CLIENT_ID, client_id) if user is None else (USER, user)
        for entity in (((kind, name),), ((kind, None),)):
            found = self._quotas.get(entity)
            if found is not None and key in found:
                return found[key]
        return None
