"""Clients that were slowed down, and what those with a quota use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.observability.registry import Family, Item, Labels, Sample
from headwater.quotas.clients import ClientQuotas
from headwater.quotas.entities import FETCH, MUTATION, PRODUCE, REQUEST

# By the key of a quota: Kafka's name of what it limits.
_RESOURCES = {
    PRODUCE: "Produce",
    FETCH: "Fetch",
    REQUEST: "Request",
    MUTATION: "ControllerMutation",
}


_UNITS = "bytes per second, or percent of the event loop's time"


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
        used = []
        for key, (user, client_id), bound, rate in self._quotas.used(self._now()):
            name = _RESOURCES.get(key, key)
            labels = Labels(resource=name, user=user or "", clientId=client_id or "")
            used.append((key, labels, rate, bound))
            yield None
        yield Family("headwater_quota_usage", "gauge", f"Usage of a client with a quota: {_UNITS}.")
        for _, labels, rate, _ in used:
            yield Sample(labels, float(rate))
        yield Family("headwater_quota_bound", "gauge", f"Quota of such a client: {_UNITS}.")
        for _, labels, _, bound in used:
            yield Sample(labels, float(bound))
        yield Family(
            "kafka_server_quota_byte_rate",
            "gauge",
            "Bytes per second of a client with a byte rate quota.",
        )
        for key, labels, rate, _ in used:
            yield Sample(labels, float(rate)) if key in (PRODUCE, FETCH) else None


def _labels(key: str) -> Labels:
    return Labels(resource=_RESOURCES.get(key, key))
