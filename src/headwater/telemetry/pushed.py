"""The metrics that clients have pushed, as a scrape of the node finds them.

A gauge has the value of the client's last push; a sum is a counter, to which deltas are added. They
are gone when the client has not pushed for three of its intervals. Clients choose names and labels,
so there is a bound on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import NamedTuple

from headwater.model import id_text
from headwater.observability.registry import Family, Item, Labels, Sample, metric_name
from headwater.protocol.otlp import Attributes, Payload
from headwater.telemetry.instances import INSTANCES_MAX, ClientAttributes

_SERIES_MAX = 100_000
_SERIES_OF_CLIENT_MAX = 10_000
_FAMILIES_MAX = 5_000
_LABEL_MAX = 256  # characters
_PREFIX = "org_apache_kafka_"
_OF_NODE = ("client_id", "client_instance_id")
_MEANING = "Pushed by clients (KIP-714)."


_SWEEP_SECONDS = 10.0

_Pairs = tuple[tuple[str, str], ...]


class Reading(NamedTuple):
    """A point as it is kept."""

    name: str  # of the family
    pairs: _Pairs
    value: float
    is_counter: bool
    is_delta: bool


@dataclass(slots=True)
class _Series:
    value: float
    labels: Labels | None = None  # made when it is first scraped


@dataclass(slots=True)
class _Family:
    """The metrics of one name: by client, then by labels."""

    is_counter: bool
    clients: dict[bytes, dict[_Pairs, _Series]] = field(default_factory=dict)


@dataclass(slots=True)
class _Client:
    about: Labels
    principal: str
    id_label: dict[str, str]
    expires_at: float = inf
    names: dict[str, None] = field(default_factory=dict)  # of the families that it is in
    count: int = 0  # of its series


class PushedMetrics:
    def __init__(self) -> None:
        self.dropped = 0  # points without room for them, or of kinds that are not read
        self._clients: dict[bytes, _Client] = {}
        self._families: dict[str, _Family] = {}
        self._count = 0
        self._sweeps_at = -inf

    def __len__(self) -> int:
        return self._count

    def take(
        self,
        instance_id: bytes,
        attributes: ClientAttributes,
        principal: str,
        readings: Sequence[Reading],
        *,
        now: float,
        lives_for: float,
    ) -> None:
        """Takes what a client has pushed. An id that another user's client has is not its own."""
        self.expire(now)
        client = self._clients.get(instance_id)
        if client is None and readings and len(self._clients) < INSTANCES_MAX:
            client = self._clients[instance_id] = _client(instance_id, attributes, principal)
        if client is None or client.principal != principal:
            self.dropped += len(readings)
            return
        client.expires_at = now + lives_for
        gauges: set[tuple[str, _Pairs]] = set()
        for reading in readings:
            if not self._note(instance_id, client, reading):
                self.dropped += 1
            elif not reading.is_counter:
                gauges.add((reading.name, reading.pairs))
        self._drop_gauges(instance_id, client, gauges)

    def _note(self, instance_id: bytes, client: _Client, reading: Reading) -> bool:
        """Keeps a reading; returns whether there was room for it."""
        name, pairs, value, is_counter, is_delta = reading
        family = self._families.get(name)
        of_client = None if family is None else family.clients.get(instance_id)
        series = None if of_client is None else of_client.get(pairs)
        if series is not None:
            series.value = series.value + value if is_delta else value
            return True
        if self._count >= _SERIES_MAX or client.count >= _SERIES_OF_CLIENT_MAX:
            return False
        if family is None:
            if len(self._families) >= _FAMILIES_MAX:
                return False
            family = self._families[name] = _Family(is_counter)
        family.clients.setdefault(instance_id, {})[pairs] = _Series(value)
        client.names[name] = None
        self._count += 1
        client.count += 1
        return True

    def _drop_gauges(
        self, instance_id: bytes, client: _Client, kept: set[tuple[str, _Pairs]]
    ) -> None:
        """Drops the gauges that the client no longer has, such as those of a partition that it has
        given up."""
        for name in tuple(client.names):
            family = self._families[name]
            if family.is_counter:
                continue
            of_client = family.clients[instance_id]
            for pairs in [each for each in of_client if (name, each) not in kept]:
                del of_client[pairs]
                self._count -= 1
                client.count -= 1
            if not of_client:
                del client.names[name]
                self._leave(name, instance_id)

    def _leave(self, name: str, instance_id: bytes) -> None:
        family = self._families[name]
        del family.clients[instance_id]
        if not family.clients:
            del self._families[name]

    def expire(self, now: float) -> None:
        """Forgets clients that push no more."""
        if now < self._sweeps_at:
            return
        self._sweeps_at = now + _SWEEP_SECONDS
        for instance_id in [key for key, each in self._clients.items() if each.expires_at <= now]:
            client = self._clients.pop(instance_id)
            self._count -= client.count
            for name in client.names:
                self._leave(name, instance_id)

    def collect(self) -> Iterator[Item]:
        """Yields all metrics, for the node's registry."""
        yield Family("headwater_client_info", "gauge", "Clients that push metrics; always 1.")
        for client in tuple(self._clients.values()):
            yield Sample(client.about, 1)
        for name, family in tuple(self._families.items()):
            yield Family(name, "counter" if family.is_counter else "gauge", _MEANING)
            for instance_id, of_client in tuple(family.clients.items()):
                for pairs, series in tuple(of_client.items()):
                    if series.labels is None:
                        if instance_id not in self._clients:
                            break  # it has expired since this scrape began
                        id_label = self._clients[instance_id].id_label
                        series.labels = Labels(**dict(pairs), **id_label)
                    yield Sample(series.labels, series.value)


def readings_of(payload: Payload) -> tuple[list[Reading], int]:
    """Returns the points of a payload as they are kept, and how many cannot be."""
    readings: list[Reading] = []
    dropped = payload.skipped
    for point in payload.points:
        if not isfinite(point.value):
            continue  # what clients say of a mean without values
        is_counter = point.is_sum and point.is_monotonic
        if point.value < 0 if is_counter else point.is_delta:
            dropped += 1  # a count that shrinks, or a sum that may and whose start is gone
            continue
        name = _name(point.name, is_counter=is_counter)
        pairs = _pairs(point.attributes)
        readings.append(Reading(name, pairs, point.value, is_counter, point.is_delta))
    return readings, dropped


def _client(instance_id: bytes, attributes: ClientAttributes, principal: str) -> _Client:
    about = {key: value for key, value in attributes._asdict().items() if value is not None}
    about |= {"principal": principal, "client_instance_id": id_text(instance_id)}
    shown = {key: value[:_LABEL_MAX] for key, value in about.items()}
    return _Client(
        Labels(**shown), principal, {key: shown[key] for key in _OF_NODE if key in shown}
    )


def _name(name: str, *, is_counter: bool) -> str:
    """Returns the name of a family. Counters end in `_total` and gauges never do, so that clients
    which do not agree on a metric's kind have two of them."""
    text = metric_name(name)
    if not text.startswith(_PREFIX):
        text = f"client_{text}"  # not to be taken for one of the node's own
    if is_counter:
        return text if text.endswith("_total") else f"{text}_total"
    return f"{text}_gauge" if text.endswith("_total") else text


def _pairs(attributes: Attributes) -> _Pairs:
    """Returns attributes as labels; what the node itself says of a client is not theirs."""
    labels: dict[str, str] = {}
    for key, value in attributes:
        name = metric_name(key)
        if name not in _OF_NODE:
            labels[name] = value[:_LABEL_MAX]
    return tuple(sorted(labels.items()))
