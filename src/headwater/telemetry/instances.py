"""The clients that push metrics to a broker: what each was asked for, and when it may push again.

Nothing here is in the metadata log: a client that comes to another broker is known there by what it
sends. Rules, intervals and error codes are Kafka's (`ClientMetricsManager`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

from headwater.errors import ApiError, ErrorCode
from headwater.model import ZERO_ID, id_text
from headwater.telemetry.subscriptions import Subscription, Wanted, wanted_of

# In the order in which clients should prefer them: zstd, lz4, gzip, snappy.
COMPRESSIONS = (4, 3, 1, 2)
_COMPRESSIONS_KNOWN = range(5)  # those and none
INSTANCES_MAX = 16384
_EXPIRY_SECONDS_MIN = 60.0
_INTERVALS_MISSED_MAX = 3
_RESERVED = frozenset({ZERO_ID, (1).to_bytes(16)})
# After one of these a client may ask again at once.
_ASKS_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


class ClientAttributes(NamedTuple):
    """The facts about a client that subscriptions may match."""

    client_id: str | None
    client_software_name: str | None
    client_software_version: str | None
    client_source_address: str
    client_source_port: str


class Instance:
    """One client."""

    __slots__ = (
        "asked_at",
        "attributes",
        "expires_at",
        "has_ended",
        "id",
        "last_error",
        "pushed_at",
        "version",
        "wanted",
    )

    def __init__(
        self, instance_id: bytes, attributes: ClientAttributes, wanted: Wanted, version: int
    ) -> None:
        self.id = instance_id
        self.attributes = attributes
        self.wanted = wanted
        self.version = version  # of the subscriptions that `wanted` was made of
        self.asked_at = -inf
        self.pushed_at = -inf
        self.expires_at = inf
        self.has_ended = False  # its last push said that it was the last
        self.last_error = ErrorCode.NONE

    def lives_for(self) -> float:
        """Returns for how many seconds it is known after its last request."""
        return max(_EXPIRY_SECONDS_MIN, _INTERVALS_MISSED_MAX * self.wanted.interval_ms / 1000)

    def may_ask(self, now: float) -> bool:
        if now - max(self.asked_at, self.pushed_at) >= self.wanted.interval_ms / 1000:
            self.asked_at = now
            return True
        return self.last_error in _ASKS_AGAIN

    def may_push(self, now: float) -> bool:
        # The first push after the subscription may come early: clients spread it.
        if self.asked_at > self.pushed_at or now - self.pushed_at >= self.wanted.interval_ms / 1000:
            self.pushed_at = now
            return True
        return False


class Instances:
    """The instances that a broker knows, the one that was quiet for longest first."""

    def __init__(self, new_id: Callable[[], bytes], *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.throttled = 0
        self.unknown_subscriptions = 0
        self._new_id = new_id
        self._known: dict[bytes, Instance] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._sweeps_at = -inf

    def __len__(self) -> int:
        return len(self._known)

    def subscribe(self, name: str, configs: Mapping[str, str]) -> None:
        """Changes a subscription, or removes it if it has no settings any more."""
        if configs:
            self._subscriptions[name] = Subscription.of(configs)
        elif self._subscriptions.pop(name, None) is None:
            return
        self._subscriptions = dict(sorted(self._subscriptions.items()))
        self._version += 1

    def ask(self, instance_id: bytes, attributes: ClientAttributes, now: float) -> Instance:
        """Returns the instance with what is wanted of it; the zero id asks for a new one."""
        if instance_id == ZERO_ID:
            instance_id = self._new_id()
        instance = self._instance(instance_id, attributes, now)
        if not instance.may_ask(now):
            self.throttled += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over")
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self,
        instance_id: bytes,
        attributes: ClientAttributes,
        now: float,
        *,
        subscription_id: int,
        is_last: bool,
        compression: int,
        size: int,
    ) -> Instance:
        """Returns the instance if it may push now."""
        if instance_id in _RESERVED:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a client instance needs an id")
        instance = self._instance(instance_id, attributes, now)
        try:
            self._check(instance, now, subscription_id, compression, size, is_last=is_last)
        except ApiError as refusal:
            instance.last_error = refusal.code
            raise
        finally:
            instance.has_ended = is_last
        instance.last_error = ErrorCode.NONE
        return instance

    def _check(
        self,
        instance: Instance,
        now: float,
        subscription_id: int,
        compression: int,
        size: int,
        *,
        is_last: bool,
    ) -> None:
        if instance.has_ended:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the push before was the last")
        if not instance.may_push(now) and not is_last:
            self.throttled += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over")
        if subscription_id != instance.wanted.subscription_id:
            self.unknown_subscriptions += 1
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if compression not in _COMPRESSIONS_KNOWN:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if size > self.bytes_max:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, f"telemetry.max.bytes={self.bytes_max}")

    def _instance(self, instance_id: bytes, attributes: ClientAttributes, now: float) -> Instance:
        self.expire(now)
        instance = self._known.pop(instance_id, None)
        if instance is None or instance.version < self._version:
            # Kafka keeps what it saw first of a client, too.
            seen = attributes if instance is None else instance.attributes
            matched = {**seen._asdict(), "client_instance_id": id_text(instance_id)}
            wanted = wanted_of(self._subscriptions.values(), matched, instance_id)
            instance = Instance(instance_id, seen, wanted, self._version)
        self._known[instance_id] = instance
        if len(self._known) > INSTANCES_MAX:
            del self._known[next(iter(self._known))]
        instance.expires_at = now + instance.lives_for()
        return instance

    def forget(self, instance_id: bytes) -> None:
        self._known.pop(instance_id, None)

    def expire(self, now: float) -> None:
        if now < self._sweeps_at:
            return
        self._sweeps_at = now + _EXPIRY_SECONDS_MIN
        for instance in [each for each in self._known.values() if each.expires_at <= now]:
            del self._known[instance.id]
