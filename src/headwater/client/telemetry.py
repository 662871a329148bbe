"""Pushes a client's metrics to the brokers, as far as these ask for them (KIP-714, KIP-1076).

A client asks a broker what is wanted, pushes that at the broker's interval, and asks again when the
broker says that the subscription has changed. Where brokers take no metrics it looks again every
five minutes and costs nothing in between. Nothing here ever fails a client: what goes wrong is
tried again later, or ends the pushes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from headwater import _core
from headwater.client.errors import (
    ClientError,
    ConfigError,
    FatalError,
    RequestTimedOut,
    UnsupportedVersion,
)
from headwater.errors import ErrorCode
from headwater.io.tasks import background_task
from headwater.model import ZERO_ID, id_text
from headwater.protocol.apis import ApiKey
from headwater.protocol.otlp import Point, encode_metrics

if TYPE_CHECKING:
    from headwater.client.cluster import Cluster
    from headwater.client.connection import Connection
    from headwater.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsResponse,
    )

_log = logging.getLogger("headwater.client")

DOMAIN = "org.apache.kafka"
_INTERVAL_SECONDS_DEFAULT = 300.0
_INTERVAL_SECONDS_MIN = 0.1
_AGAIN_SECONDS = 1.0  # before asking again, where Kafka's clients ask at once
_LAST_PUSH_SECONDS = 1.0
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_OF_USER = ":"  # before the names of metrics that users have registered
_REGISTERED_MAX = 1000

# How to go on after an error, as Kafka's clients do; anything else ends the pushes.
_ASK_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_ASK_LATER = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription that a broker has sent."""

    instance_id: bytes
    id: int
    interval: float  # seconds
    compression: int
    bytes_max: int
    is_delta: bool
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, told: GetTelemetrySubscriptionsResponse) -> Subscription:
        interval = told.push_interval_ms / 1000
        codecs = [codec for codec in told.accepted_compression_types if 0 <= codec <= 4]
        return cls(
            told.client_instance_id,
            told.subscription_id,
            max(interval, _INTERVAL_SECONDS_MIN) if interval > 0 else _INTERVAL_SECONDS_DEFAULT,
            codecs[0] if codecs else 0,  # in the broker's order of preference
            told.telemetry_max_bytes,
            told.delta_temporality,
            tuple(told.requested_metrics),
        )

    def wants(self, name: str) -> bool:
        return self.prefixes == ("*",) or name.startswith(self.prefixes)


class Ledger:
    """Makes points of metrics, and remembers what of the totals has been pushed."""

    def __init__(self, prefix_of: Callable[[str], str], started_ns: int) -> None:
        """`prefix_of` returns the group of a metric, such as `org.apache.kafka.producer.`"""
        self._prefix_of = prefix_of
        self._pushed: dict[str, float] = {}  # totals, by the name of the metric
        self._pushed_ns = started_ns
        self._started_ns = started_ns

    def points(
        self, metrics: Mapping[str, float], subscription: Subscription, now_ns: int
    ) -> Iterator[Point]:
        for name, value in self._with_rates(metrics, now_ns):
            plain, _, rest = name.partition("{")
            labels = tuple(_LABEL.findall(rest)) if rest else ()
            if plain.startswith(_OF_USER):
                full = f"{DOMAIN}.{_dotted(plain[1:])}"
            else:
                full = self._prefix_of(plain) + _dotted(plain)
            if not subscription.wants(full) or not isfinite(value):
                continue
            if not plain.endswith("-total"):
                yield Point(full, labels, value, time_ns=now_ns)
            elif subscription.is_delta:
                yield Point(
                    full,
                    labels,
                    value - self._pushed.get(name, 0),
                    is_sum=True,
                    is_delta=True,
                    is_monotonic=True,
                    start_ns=self._pushed_ns if name in self._pushed else self._started_ns,
                    time_ns=now_ns,
                )
            else:
                yield Point(
                    full,
                    labels,
                    value,
                    is_sum=True,
                    is_monotonic=True,
                    start_ns=self._started_ns,
                    time_ns=now_ns,
                )

    def _with_rates(self, metrics: Mapping[str, float], now_ns: int) -> Iterator[tuple[str, float]]:
        yield from metrics.items()
        opened = "connection-creation-total"
        seconds = (now_ns - self._pushed_ns) / 1e9
        if opened in metrics and seconds > 0:
            rate = (metrics[opened] - self._pushed.get(opened, 0)) / seconds
            yield "connection-creation-rate", rate

    def taken(self, metrics: Mapping[str, float], now_ns: int) -> None:
        """The broker has taken these metrics."""
        self._pushed = {name: value for name, value in metrics.items() if name.endswith("-total")}
        self._pushed_ns = now_ns


def _dotted(name: str) -> str:
    return name.replace("-", ".").lower()


class Telemetry:
    """The pushes of one client."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        measured: Callable[[], Mapping[str, float] | None],
        prefix_of: Callable[[str], str],
        labels: Callable[[], Mapping[str, str | None]],
    ) -> None:
        """`measured` returns the client's metrics, None when it is gone. `labels` are those of all
        its metrics; None leaves one out."""
        config = cluster.config
        self._is_on = config.enable_metrics_push and not config.asks_controllers
        self._cluster = cluster
        self._measured = measured
        self._labels = labels
        self._ledger = Ledger(prefix_of, self._now_ns())
        self._registered: dict[str, Callable[[], float]] = {}
        self._subscription: Subscription | None = None
        self._instance_id = ZERO_ID
        self._must_ask = True
        self._node: int | None = None  # that told the subscription
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._told = asyncio.Event()

    def _now_ns(self) -> int:
        return self._cluster.host.clock.wall_ms() * 1_000_000

    # Start and end

    def start(self) -> None:
        if self._is_on:
            self._go_on_in(0.0)

    def _go_on_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_step)

    def _begin_step(self) -> None:
        self._timer = None
        self._task = background_task(self._step())

    async def close(
        self, metrics: Mapping[str, float] | None, *, seconds: float = _LAST_PUSH_SECONDS
    ) -> None:
        """Pushes the values since the last push, if that is quick, and then stops."""
        self._stop()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        subscription = self._subscription
        if subscription is None or not subscription.prefixes or metrics is None or seconds <= 0:
            return
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(min(seconds, _LAST_PUSH_SECONDS)):
                connection = self._ready()
                if connection is not None:
                    await self._push(connection, subscription, metrics, is_last=True)

    def _stop(self) -> None:
        self._is_on = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What users ask

    async def instance_id(self, timeout_ms: int) -> str:
        if not self._is_on:
            raise ConfigError("the client pushes no metrics: enable_metrics_push is off, or ended")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._told.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"no client instance id within timeout_ms={timeout_ms}: brokers give one if they "
                "take metrics of clients"
            ) from None
        return id_text(self._instance_id)

    def register(self, name: str, read: Callable[[], float]) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_.\-]{1,200}", name):
            raise ConfigError(
                f"metric {name!r}: expected 1 to 200 letters, digits, dots, dashes and underscores"
            )
        if not callable(read):
            raise ConfigError(f"metric {name}: expected a function that returns a number")
        if len(self._registered) >= _REGISTERED_MAX and name not in self._registered:
            raise ConfigError(f"at most {_REGISTERED_MAX} metrics can be registered")
        self._registered[name] = read

    def unregister(self, name: str) -> None:
        self._registered.pop(name, None)

    # One step after the other

    async def _step(self) -> None:
        try:
            wait = await self._next()
        except UnsupportedVersion:
            wait = _INTERVAL_SECONDS_DEFAULT
        except FatalError as error:
            _log.debug("metrics are pushed no more: %s", error)
            self._stop()
            return
        except ClientError as error:
            _log.debug("metrics could not be pushed: %s", error)
            wait = _INTERVAL_SECONDS_DEFAULT
            if self._subscription is not None:
                wait = self._subscription.interval
        if self._is_on:
            self._go_on_in(wait)

    def _ready(self) -> Connection | None:
        """Returns an open connection to the broker that told the subscription."""
        return None if self._node is None else self._cluster.ready(self._node)

    async def _next(self) -> float:
        """Asks or pushes; returns the seconds until the next step."""
        connection = self._ready()
        if connection is None:
            connection = await self._cluster.any()
        if connection.version(ApiKey.PUSH_TELEMETRY) is None:
            return _INTERVAL_SECONDS_DEFAULT
        self._node = connection.node_id
        subscription = self._subscription
        if subscription is None or self._must_ask:
            return await self._ask(connection)
        metrics = self._measured()
        if metrics is None:  # nobody closed it
            self._stop()
            return 0.0
        return await self._push(connection, subscription, metrics)

    async def _ask(self, connection: Connection) -> float:
        from headwater.protocol.messages.get_telemetry_subscriptions import (
            GetTelemetrySubscriptionsRequest,
        )

        told = await connection.ask(
            GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id)
        )
        if told.error_code:
            return self._refused(told.error_code)
        if told.client_instance_id == ZERO_ID:
            self._stop()
            return 0.0
        subscription = self._subscription = Subscription.of(told)
        self._instance_id = subscription.instance_id
        self._told.set()
        # Without anything to push, it asks again at the interval.
        self._must_ask = not subscription.prefixes
        if self._must_ask:
            return subscription.interval
        # Clients that start together do not push together.
        return subscription.interval * self._cluster.host.random.uniform(0.5, 1.5)

    async def _push(
        self,
        connection: Connection,
        subscription: Subscription,
        metrics: Mapping[str, float],
        *,
        is_last: bool = False,
    ) -> float:
        from headwater.protocol.messages.push_telemetry import PushTelemetryRequest

        by_node = self._cluster.traffic.shown_by_node(self._cluster.now())
        metrics = {**metrics, **by_node, **self._of_user()}
        now_ns = self._now_ns()
        points = list(self._ledger.points(metrics, subscription, now_ns))
        answer = await connection.ask(
            PushTelemetryRequest(
                client_instance_id=subscription.instance_id,
                subscription_id=subscription.id,
                terminating=is_last,
                compression_type=subscription.compression,
                metrics=self._packed(subscription, points),
            )
        )
        if answer.error_code:
            return self._refused(answer.error_code)
        self._ledger.taken(metrics, now_ns)
        return subscription.interval

    def _packed(self, subscription: Subscription, points: list[Point]) -> bytes:
        """Returns the points as the broker takes them: without those of single partitions if they
        are too many, then without the last ones."""
        labels = {key: value for key, value in self._labels().items() if value}
        plain = encode_metrics(labels, points)
        if len(plain) > subscription.bytes_max:
            points = [point for point in points if not point.attributes]
            plain = encode_metrics(labels, points)
        while len(plain) > subscription.bytes_max and points:
            del points[len(points) // 2 :]
            plain = encode_metrics(labels, points)
        if not subscription.compression:
            return plain
        return _core.compress(subscription.compression, plain)

    def _refused(self, code: int) -> float:
        """Returns the seconds until the broker is asked again."""
        self._must_ask = True
        if code in _ASK_AGAIN:
            return _AGAIN_SECONDS
        if code in _ASK_LATER:
            if self._subscription is None:
                return _INTERVAL_SECONDS_DEFAULT
            return self._subscription.interval
        _log.debug("metrics are pushed no more: the broker answers with error %s", code)
        self._stop()
        return 0.0

    def _of_user(self) -> dict[str, float]:
        """Returns what the registered functions say; one that fails is left out."""
        found: dict[str, float] = {}
        for name, read in self._registered.items():
            value: Any = None
            with contextlib.suppress(Exception):  # code of the user's, whose errors are not ours
                value = read()
            if isinstance(value, int | float):
                found[_OF_USER + name] = value
        return found
