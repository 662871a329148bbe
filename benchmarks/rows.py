"""Measurements, goals, and the session that runs the brokers.

A family is a function that measures one broker and yields measurements. Families run for both
brokers in turn, and the two values of a measurement give its ratio.
A duel runs both brokers at once and measures them alternately, Kafka's measurement first.
A contest measures several programs on one broker: ours and the alternatives.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.nodes import Flavour, Node


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the ratio of the subject's value to Kafka's, or on the value itself."""

    bound: float
    at_most: bool
    of_value: bool = False

    def holds(self, number: float) -> bool:
        return number <= self.bound if self.at_most else number >= self.bound

    def __str__(self) -> str:
        if self.of_value:
            return f"{self.bound:g} at {'most' if self.at_most else 'least'}"
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"


def at_most(bound: float) -> Goal:
    return Goal(bound, at_most=True)


def at_least(bound: float) -> Goal:
    return Goal(bound, at_most=False)


def value_at_most(bound: float) -> Goal:
    """Bounds the value itself, whatever Kafka's is."""
    return Goal(bound, at_most=True, of_value=True)


def value_at_least(bound: float) -> Goal:
    return Goal(bound, at_most=False, of_value=True)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One value of one broker: `key` identifies the row, `samples` are the single results."""

    key: str
    what: str
    unit: str
    samples: tuple[float, ...]
    goal: Goal | None = None
    more_is_better: bool = False

    @property
    def value(self) -> float:
        ordered = sorted(self.samples)
        middle = len(ordered) // 2
        if len(ordered) % 2:
            return ordered[middle]
        return (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value of several programs on the same broker, by name; the first one is ours. Goals
    bound the ratio of our value to that of another program."""

    key: str
    what: str
    unit: str
    samples: dict[str, tuple[float, ...]]
    goals: dict[str, Goal] = field(default_factory=dict)
    more_is_better: bool = False

    def beside(self, other: str) -> tuple[Measurement, Measurement]:
        """Returns the value of the other program and ours, as two measurements of one row."""
        ours = next(iter(self.samples))
        what = self.what if len(self.samples) == 2 else f"{self.what}; {other}"
        rest = (self.goals.get(other), self.more_is_better)
        first, second = (
            Measurement(f"{self.key}.{other}", what, self.unit, self.samples[name], *rest)
            for name in (other, ours)
        )
        return first, second


@dataclass(slots=True)
class Session:
    """The size of this run, its directory, and the rows that are wanted."""

    jars: Path
    folder: Path
    quick: bool = False
    only: tuple[str, ...] = ()
    repeats: bool = False  # the whole run is repeated, so that each run needs one sample
    facts: dict[str, float] = field(default_factory=dict)  # what later measurements depend on
    _made: int = field(default=0)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def samples(self, full: int, quick: int) -> int:
        return 1 if self.repeats else self.size(full, quick)

    def wants(self, key: str) -> bool:
        return not self.only or any(is_part(key, name) for name in self.only)

    def wants_below(self, name: str) -> bool:
        """Returns whether any of the rows that begin with `name` is wanted."""
        return self.wants(name) or any(is_part(each, name) for each in self.only)

    def fresh_node(self, flavour: Flavour) -> Node:
        """Returns a new node with an empty directory on the measured disk."""
        self._made += 1
        folder = self.folder / f"{flavour.name}-{self._made}"
        shutil.rmtree(folder, ignore_errors=True)
        return Node(flavour, folder)


def is_part(key: str, name: str) -> bool:
    """Returns whether `key` is the row `name`, or one of the rows below it."""
    return key == name or key.startswith(f"{name}.")


Family = Callable[[Session, Flavour], Iterator[Measurement]]
Duel = Callable[[Session, Flavour, Flavour], Iterator[tuple[Measurement, Measurement]]]
Contest = Callable[[Session, Flavour], Iterator[Comparison]]
