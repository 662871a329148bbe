"""Assignors by name: `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or the user's own."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.client.consumer.membership.assignors.model import (
    Assignor,
    GroupMember,
    LastAssignment,
    Topics,
)
from headwater.client.consumer.membership.assignors.ordered import RangeAssignor, RoundRobinAssignor
from headwater.client.consumer.membership.assignors.sticky import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from headwater.client.errors import ConfigError

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "LastAssignment",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Topics",
    "assignors_of",
]

_KNOWN: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
        CooperativeStickyAssignor,
    )
}
_JAVA_PREFIX = "org.apache.kafka.clients.consumer."


def assignors_of(strategies: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """Returns the assignors in order of preference; ConfigError for an unknown name. The class
    names of the Java client are accepted, so that configurations can be reused."""
    by_class = {f"{_JAVA_PREFIX}{known.__name__}": known for known in _KNOWN.values()}
    found: dict[str, Assignor] = {}
    for strategy in strategies:
        if isinstance(strategy, str):
            known = _KNOWN.get(strategy) or by_class.get(strategy)
            if known is None:
                raise ConfigError(
                    f"partition.assignment.strategy {strategy!r} is unknown; use "
                    f"{', '.join(_KNOWN)}, or an Assignor of your own"
                )
            strategy = known()
        if strategy.name in found:
            raise ConfigError(f"partition.assignment.strategy names {strategy.name!r} twice")
        found[strategy.name] = strategy
    if not found:
        raise ConfigError(
            "partition.assignment.strategy is empty; give at least one, such as range"
        )
    return tuple(found.values())
