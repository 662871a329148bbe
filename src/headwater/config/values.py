"""Values of settings: parsing and printing of each type, as Kafka does it."""

from __future__ import annotations

import re
from enum import IntEnum


class LookedUp(str):
    """A value from a config provider. Errors, listings and log lines show `reference` instead."""

    __slots__ = ("reference",)
    reference: str

    @classmethod
    def of(cls, value: str, reference: str) -> LookedUp:
        found = cls(value)
        found.reference = reference
        return found


def shown(text: str) -> str:
    """Returns a setting as it may be shown: by its reference, if it was looked up."""
    return text.reference if isinstance(text, LookedUp) else text


class ConfigError(ValueError):
    """Raised for an invalid setting. `expected` says what is valid."""

    def __init__(self, key: str, value: object, expected: str, *, secret: bool = False) -> None:
        value = shown(value) if isinstance(value, str) else value
        text = "[hidden]" if secret else repr(value) if isinstance(value, str) else str(value)
        super().__init__(f"{key}={text}: {expected}")
        self.key = key
        self.value = None if secret else value
        self.expected = expected


ConfigValue = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """Types of settings, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


# Java's trim(): every character up to the space, but not Unicode's other blanks.
_BLANKS = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)", re.ASCII
)
_COMMA = re.compile(r"\s*,\s*", re.ASCII)
_INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


def parse_value(name: str, kind: ConfigType, text: str | None) -> ConfigValue:
    """Returns the typed value of `text`; raises ConfigError if it is invalid. None stays None."""
    if text is None:
        return None
    trimmed = text.strip(_BLANKS)
    if kind in _INTEGER_BITS:
        return _integer(name, text, _INTEGER_BITS[kind])
    if kind is ConfigType.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise ConfigError(name, text, "expected true or false")
        return lowered == "true"
    if kind is ConfigType.LIST:
        return tuple(_COMMA.split(trimmed)) if trimmed else ()
    if kind is ConfigType.DOUBLE:
        if not _DECIMAL.fullmatch(trimmed):
            raise ConfigError(name, text, "expected a number")
        return float(trimmed.rstrip("fFdD"))
    if kind is ConfigType.CLASS and not trimmed:
        raise ConfigError(name, text, "expected a class name")
    return trimmed


def render_value(kind: ConfigType, value: ConfigValue) -> str | None:
    """Returns the text of a value, as Kafka's tools show it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if kind is ConfigType.DOUBLE:
        return _java_double(float(value))
    return str(value)


def _integer(name: str, text: str, bits: int) -> int:
    trimmed = text.strip(_BLANKS)
    if _INTEGER.fullmatch(trimmed) and len(trimmed) <= 40:
        value = int(trimmed)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    raise ConfigError(name, text, f"expected a {bits}-bit integer")


def _java_double(value: float) -> str:
    """Formats a double as Java does: plain from 0.001 to 10 million, else with one digit before
    E."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "." in text else text + ".0"
    sign, digits, exponent = _decimal_parts(value)
    fraction = digits[1:] or "0"
    return f"{sign}{digits[0]}.{fraction}E{exponent}"


def _decimal_parts(value: float) -> tuple[str, str, int]:
    mantissa, _, exponent = f"{value!r}".lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    power = int(exponent or 0) + len(whole) - 1 - leading
    return "-" if value < 0 else "", digits.rstrip("0") or "0", power
