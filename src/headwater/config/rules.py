"""Rules for values: ranges, choices, lists, parsed from the short notation of the tables.

>=1   1..9   in(a|b)   anycase(a|b)   nonempty   nonnull
list  list!  list?  list(a|b)       a list without duplicates; ! not empty, ? may be unset
gzip  throttled  reset  servers  voters   rules of one or two settings
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

from headwater.config.values import ConfigValue


class Rule(Protocol):
    def expected_instead_of(self, value: ConfigValue) -> str | None:
        """Returns what is allowed instead of the value, or None if it is valid."""


class Range(NamedTuple):
    low: float
    high: float | None = None

    def expected_instead_of(self, value: ConfigValue) -> str | None:
        if value is None:
            return "expected a number, not null"
        assert isinstance(value, int | float)
        if value < self.low or (self.high is not None and value > self.high):
            if self.high is None:
                return f"expected at least {self.low}"
            return f"expected {self.low} to {self.high}"
        return None


class OneOf(NamedTuple):
    choices: tuple[str, ...]
    any_case: bool = False

    def expected_instead_of(self, value: ConfigValue) -> str | None:
        if self.any_case and isinstance(value, str):
            allowed = value.lower() in {choice.lower() for choice in self.choices}
        else:
            allowed = value in self.choices
        return None if allowed else f"expected one of {', '.join(self.choices)}"


class ListOf(NamedTuple):
    """A list without empty items. `parse` removes duplicates."""

    choices: tuple[str, ...] = ()
    empty: bool = True
    null: bool = False

    def expected_instead_of(self, value: ConfigValue) -> str | None:
        if value is None:
            return None if self.null else "expected a list, not null"
        assert isinstance(value, tuple)
        if not value:
            return None if self.empty else "expected at least one item"
        if "" in value:
            return "expected no empty item between the commas"
        if self.choices and not set(value) <= set(self.choices):
            return f"expected only {', '.join(self.choices)}"
        return None


class Test(NamedTuple):
    """A predicate: true means valid."""

    allows: Callable[[ConfigValue], bool]
    expected: str

    def expected_instead_of(self, value: ConfigValue) -> str | None:
        return None if self.allows(value) else self.expected


# Patterns are compiled where they are used: few settings need them.
_THROTTLED = r"(?:\d+:\d+)?(?:,\d+:\d+)*"
_DURATION = (
    r"(?i:([+-]?)P(?=.)(?:([+-]?\d+)D)?"
    r"(?:T(?=.)(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{0,9}))?S)?)?)"
)
_VOTER = r"\d+@.+:\d{1,5}"
_SERVER = r"(?:\[[0-9a-zA-Z\-%._:]+\]|[0-9a-zA-Z\-%._]+):\d{1,5}"


def _all_match(pattern: str, value: ConfigValue) -> bool:
    return isinstance(value, tuple) and all(re.fullmatch(pattern, item) for item in value)


def _is_throttled_list(value: ConfigValue) -> bool:
    if not isinstance(value, tuple):
        return False
    return value == ("*",) or re.fullmatch(_THROTTLED, ",".join(value)) is not None


def _is_reset(value: ConfigValue) -> bool:
    if not isinstance(value, str):
        return False
    if value in ("earliest", "latest"):
        return True
    word, _, duration = value.partition(":")
    return word == "by_duration" and _is_duration(duration)


def _is_duration(text: str) -> bool:
    """Returns whether the text is a non-negative ISO 8601 duration, as Java parses it."""
    match = re.fullmatch(_DURATION, text)
    if match is None:
        return False
    sign, days, hours, minutes, seconds, fraction = match.groups()
    total = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    part = float(f"{seconds}.{fraction or 0}") if seconds else 0.0
    return (total + part) * (-1 if sign == "-" else 1) >= 0


_NAMED: dict[str, Rule] = {
    "nonempty": Test(lambda value: value != "", "expected a non-empty string"),
    "nonnull": Test(lambda value: value is not None, "expected a string, not null"),
    "gzip": Test(
        lambda value: isinstance(value, int) and (value == -1 or 1 <= value <= 9),
        "expected 1 to 9, or -1 for the library's default",
    ),
    "throttled": Test(_is_throttled_list, "expected * or partition:broker,partition:broker,..."),
    "reset": Test(_is_reset, "expected earliest, latest or by_duration:PnDTnHnMn.nS"),
    "voters": Test(
        lambda value: _all_match(_VOTER, value),
        "expected id@host:port,id@host:port,...",
    ),
    "servers": Test(
        lambda value: _all_match(_SERVER, value),
        "expected host:port,host:port,...",
    ),
}


@cache
def rule_from_text(text: str) -> Rule:
    """Parses a rule in the notation of the tables."""
    if text in _NAMED:
        return _NAMED[text]
    if text.startswith(">="):
        return Range(_number(text[2:]))
    if ".." in text:
        low, high = text.split("..")
        return Range(_number(low), _number(high))
    word, _, inside = text.partition("(")
    choices = tuple(inside.rstrip(")").split("|")) if inside else ()
    if word.startswith("list"):
        return ListOf(choices, empty="!" not in word, null="?" in word)
    assert word in ("in", "anycase"), text
    return OneOf(choices, any_case=word == "anycase")


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
