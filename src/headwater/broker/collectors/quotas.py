"""Clients that were slowed down, and what those with a quota use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.observability.registry import Family, Item, Labels, Sample
from headwater.quotas.clients import ClientQuotas, Used
from headwater.quotas.entities import FETCH, MUTATION, PRODUCE, REQUEST

# By the key of a quota: Kafka's name of what it limits.
_RESOURCES = {
    PRODUCE: "Produce",
    FETCH: "Fetch",
    REQUEST: "Request",
    MUTATION: "ControllerMutation",
}


class QuotaCollector:
    def __init__(self, quotas: ClientQuotas, now: Callable[[], float]) -> None:
        self._quotas = quotas
        self._now = now

    def collect(self) -> Iterator[Item]:
        throttled = tuple(self._quotas.throttled.items())
        yield Family(
            "headwater_quota_throttled_total", "counter", "Requests and connections slowed down."
        )
        for key, each in throttled:
            yield Sample(_labels(key), each.count)
        yield Family(
            "headwater_quota_throttled_seconds_total",
            "counter",
            "Total time for which they were slowed down.",
        )
        for key, each in throttled:
            yield Sample(_labels(key), each.seconds)
        used: list[tuple[Labels, Used]] = []
        for client in self._quotas.used(self._now()):
            if client is None:
                yield None
                continue
            user, client_id = client.subject
            name = _RESOURCES.get(client.key, client.key)
            used.append((Labels(resource=name, user=user or "", clientId=client_id or ""), client))
            yield None
        for name, what, of in _OF_CLIENTS:
            yield Family(name, "gauge", what)
            for labels, client in used:
                value = of(client)
                yield None if value is None else Sample(labels, float(value))

    def collect_by_type(self) -> Iterator[Item]:
        """The same under names that have the type of the quota, as Confluent's rules give them."""
        used: list[tuple[Labels, Used]] = []
        for client in self._quotas.used(self._now()):
            if client is not None and client.key in (PRODUCE, FETCH, REQUEST):
                user, client_id = client.subject
                used.append((Labels(user=user or "", client_id=client_id or ""), client))
            yield None
        for key, value in ((PRODUCE, "byte_rate"), (FETCH, "byte_rate"), (REQUEST, "request_time")):
            prefix = f"kafka_server_{_RESOURCES[key].lower()}"
            yield Family(f"{prefix}_{value}", "gauge", "Usage of a client with such a quota.")
            for labels, client in used:
                rate = client.rate if client.key == key else None
                yield None if rate is None else Sample(labels, rate)
            yield Family(f"{prefix}_throttle_time", "gauge", "Its mean throttle time, in ms.")
            for labels, client in used:
                seconds = client.wait_seconds
                yield Sample(labels, 1000 * seconds) if client.key == key else None


def _bytes(used: Used) -> float | None:
    return used.rate if used.key in (PRODUCE, FETCH) else None


def _time(used: Used) -> float | None:
    return used.rate if used.key == REQUEST else None


_OF_CLIENTS: tuple[tuple[str, str, Callable[[Used], float | None]], ...] = (
    (
        "headwater_quota_usage",
        "Usage of a client with a quota: bytes per second, or percent of the event loop's time.",
        lambda used: used.rate,
    ),
    (
        "headwater_quota_bound",
        "Quota of such a client: bytes or partitions per second, or percent of the event loop's "
        "time.",
        lambda used: used.bound,
    ),
    (
        "kafka_server_quota_byte_rate",
        "Bytes per second of a client with a byte rate quota.",
        _bytes,
    ),
    (
        "kafka_server_quota_request_time",
        "Share of the event loop's time that a client with a quota of it uses, in percent.",
        _time,
    ),
    (
        "kafka_server_quota_tokens",
        "Partitions that a client with a controller_mutation_rate may create or delete at once; "
        "reported by the active controller.",
        lambda used: used.tokens,
    ),
    (
        "kafka_server_quota_throttle_time",
        "Mean throttle time of a client with a quota in the last minute, in milliseconds; 0 if it "
        "was not throttled.",
        lambda used: 1000 * used.wait_seconds,
    ),
)


def _labels(key: str) -> Labels:
    return Labels(resource=_RESOURCES.get(key, key))
