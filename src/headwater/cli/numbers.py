"""Numbers as they are typed: what is none, or cannot be, is said with what was expected."""

from __future__ import annotations

from argparse import ArgumentTypeError


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text}: expected a whole number") from None


def from_zero(text: str) -> int:
    return _at_least(0, text)


def from_one(text: str) -> int:
    return _at_least(1, text)


def seconds(text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 <= given < float("inf"):  # nan is neither
        raise ArgumentTypeError(f"{text}: expected seconds, such as 5 or 0.5")
    return given


def _at_least(least: int, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise ArgumentTypeError(f"{text}: expected a whole number from {least} on")
    return int(text)
