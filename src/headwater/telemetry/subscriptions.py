"""Subscriptions of client metrics: the metrics that operators want, and from which clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater import _core
from headwater.config import client_metrics_definitions
from headwater.config.definition import parse
from headwater.groups.consumer.re2 import Pattern, PatternError

ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 5 * 60 * 1000

_HASH_TABLE_MIN = 16  # buckets of Java's HashSet


class Matcher:
    """A pattern that must match all of an attribute.

    Clients choose what is matched, so that a pattern is not left to backtracking if there is
    another way. Kafka's are Java's; what those have and RE2 has not (look-around, references) is
    left to Python.
    """

    __slots__ = ("_automaton", "_pattern")

    def __init__(self, text: str) -> None:
        self._pattern = re.compile(text)
        self._automaton: Pattern | None = None
        if text.isascii():
            try:
                self._automaton = Pattern(text)
            except PatternError:
                return

    def matches(self, text: str) -> bool:
        if self._automaton is None:
            return self._pattern.fullmatch(text) is not None
        # The automaton knows only ASCII; an ASCII pattern tells other characters apart in no way
        # but by whether it allows any.
        return self._automaton.matches("".join(c if c.isascii() else "\x7f" for c in text))


class Subscription(NamedTuple):
    """One client-metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    matchers: Mapping[str, Matcher]  # by attribute; all must match

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Subscription:
        """Takes settings that the controller has validated."""
        values = {
            name: parse(definition, configs[name]) if name in configs else definition.default
            for name, definition in client_metrics_definitions().items()
        }
        metrics, interval_ms, match = values["metrics"], values["interval.ms"], values["match"]
        assert isinstance(metrics, tuple)
        assert isinstance(interval_ms, int)
        assert isinstance(match, tuple)
        matchers: dict[str, Matcher] = {}
        for each in match:
            name, _, pattern = each.partition("=")
            matchers[name.strip()] = Matcher(pattern.strip())
        return cls(metrics, interval_ms, matchers)

    def is_for(self, attributes: Mapping[str, str | None]) -> bool:
        for name, matcher in self.matchers.items():
            value = attributes.get(name)
            if value is None or not matcher.matches(value):
                return False
        return True


class Wanted(NamedTuple):
    """The metrics that all subscriptions together request from one client."""

    metrics: tuple[str, ...]  # prefixes of names
    interval_ms: int
    subscription_id: int


def wanted_of(
    subscriptions: Iterable[Subscription],
    attributes: Mapping[str, str | None],
    instance_id: bytes,
) -> Wanted:
    names: dict[str, None] = {}
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions:
        if subscription.is_for(attributes):
            names.update(dict.fromkeys(subscription.metrics))
            interval_ms = min(interval_ms, subscription.interval_ms)
    metrics = (ALL_METRICS,) if ALL_METRICS in names else _in_java_order(names)
    return Wanted(metrics, interval_ms, _subscription_id(metrics, interval_ms, instance_id))


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: bytes) -> int:
    """Returns the id that Kafka's brokers compute for the same subscriptions, so that a client may
    go from one kind of broker to the other."""
    crc = _core.crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    words = (int.from_bytes(instance_id[at : at + 4]) for at in range(0, 16, 4))
    for word in words:  # the hash code of a Java UUID
        crc ^= word
    return crc - (1 << 32) if crc >> 31 else crc


def _in_java_order(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names in the order in which Java's HashSet has them."""
    listed = list(names)
    size = _HASH_TABLE_MIN
    while len(listed) > size * 3 // 4:
        size *= 2
    return tuple(sorted(listed, key=lambda name: _java_hash(name) & (size - 1)))


def _java_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return code ^ code >> 16
