"""Readers of client settings: from Python's types, or from text as in a properties file.

A reader takes the setting's name and value and returns what the client uses, or raises
`ConfigError` with the value and what is allowed instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from headwater.client.errors import ConfigError
from headwater.io import Address

Reader = Callable[[str, Any], Any]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PORT_DEFAULT = 9092

_PLAIN_SERIALIZERS = (
    "org.apache.kafka.common.serialization.ByteArraySerializer",
    "org.apache.kafka.common.serialization.StringSerializer",
)

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def refuse(name: str, value: object, expected: str) -> NoReturn:
    raise ConfigError(f"{name}={value!r}: expected {expected}")


def integer(low: int = 0, high: int = INT_MAX) -> Reader:
    def read(name: str, value: Any) -> int:
        expected = f"a whole number from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            refuse(name, value, expected)
        try:
            number = int(value)
        except ValueError:
            refuse(name, value, expected)
        if not low <= number <= high:
            refuse(name, value, expected)
        return number

    return read


def decimal(low: float, high: float) -> Reader:
    def read(name: str, value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not low <= number <= high:
            refuse(name, value, f"a number from {low} to {high}")
        return number

    return read


def gzip_level(name: str, value: Any) -> int:
    level: int = integer(-1, 9)(name, value)
    if level == 0:
        refuse(name, value, "a whole number from 1 to 9, or -1 for gzip's own choice")
    return level


def boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    refuse(name, value, "True or False")


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        refuse(name, value, "text")
    return value


def optional_text(name: str, value: Any) -> str | None:
    return None if value is None else text(name, value)


def filled_text(name: str, value: Any) -> str | None:
    """Reads text that must not be empty, or None."""
    if value is None:
        return None
    if not text(name, value).strip():
        refuse(name, value, "text that is not empty, or None")
    return str(value)


def one_of(*words: str) -> Reader:
    def read(name: str, value: Any) -> str:
        if isinstance(value, str):
            for word in words:
                if value.strip().lower() == word.lower():
                    return word
        refuse(name, value, "one of " + ", ".join(words))

    return read


def words(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Iterable):
        refuse(name, value, "a list of text, or text with commas")
    found = tuple(each.strip() for each in value if isinstance(each, str) and each.strip())
    if not found:
        refuse(name, value, "at least one name")
    return found


def words_of(*known: str) -> Reader:
    def read(name: str, value: Any) -> tuple[str, ...]:
        found = words(name, value)
        for word in found:
            if word not in known:
                refuse(name, word, "some of " + ", ".join(known))
        return found

    return read


def store_type(name: str, value: Any) -> str:
    """Reads the type of a truststore or keystore."""
    if isinstance(value, str) and value.upper() in ("PEM", "JKS", "PKCS12"):
        return value.upper()
    refuse(name, value, "PEM, JKS or PKCS12")


def tls_context(name: str, value: Any) -> Any:
    """Reads an `ssl.SSLContext`, without loading its module."""
    if value is None or hasattr(value, "wrap_bio"):
        return value
    refuse(name, value, "an ssl.SSLContext")


def strategies(name: str, value: Any) -> tuple[Any, ...]:
    """Reads names of assignors, and assignor objects."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return words(name, value)
    found = tuple(each.strip() if isinstance(each, str) else each for each in value)
    for each in found:
        if not isinstance(each, str) and not callable(getattr(each, "assign", None)):
            refuse(name, each, "the name of an assignor, or an object with `name` and `assign`")
    if not found:
        refuse(name, value, "at least one name")
    return found


def function(name: str, value: Any) -> Callable[..., Any] | None:
    if value is None or callable(value):
        return value  # type: ignore[no-any-return]
    refuse(name, value, "a function, or None")


def serializer(name: str, value: Any) -> Callable[..., Any] | None:
    """Reads a function. The names of Kafka's classes that do what is done anyway are accepted."""
    if value is None or callable(value):
        return value  # type: ignore[no-any-return]
    if value in _PLAIN_SERIALIZERS:
        return None
    refuse(name, value, "a function that returns bytes; bytes and text need none")


def objects(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        refuse(name, value, "a list of objects")
    return tuple(value)


def acks(name: str, value: Any) -> int:
    if isinstance(value, str):
        value = value.strip()
    if value in ("all", "-1") or (value == -1 and not isinstance(value, bool)):
        return -1
    if not isinstance(value, bool) and value in (0, 1, "0", "1"):
        return int(value)
    refuse(name, value, '0, 1 or "all"')


def offset_reset(name: str, value: Any) -> str:
    """Reads earliest, latest, none, or by_duration:ISO8601 (KIP-1106)."""
    if isinstance(value, str):
        word = value.strip()
        if word.lower() in ("earliest", "latest", "none"):
            return word.lower()
        kind, _, duration = word.partition(":")
        if kind.lower() == "by_duration" and _DURATION.fullmatch(duration):
            return f"by_duration:{duration.upper()}"
    refuse(name, value, "earliest, latest, none, or by_duration:PnDTnHnMnS as in by_duration:PT1H")


def duration_ms(duration: str) -> int:
    """Returns the length of PnDTnHnMn.nS."""
    found = _DURATION.fullmatch(duration)
    assert found is not None, f"{duration!r} was not checked by offset_reset"
    days, hours, minutes = (int(found[part] or 0) for part in ("days", "hours", "minutes"))
    whole, _, fraction = (found["seconds"] or "0").partition(".")
    seconds = ((days * 24 + hours) * 60 + minutes) * 60 + int(whole)
    return seconds * 1000 + int((fraction + "000")[:3])


def bootstrap(name: str, value: Any) -> tuple[Address, ...]:
    """Reads addresses as HOST:PORT with commas, or a list of them; the default port is 9092."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Iterable):
        refuse(name, value, '"HOST:PORT[,HOST:PORT]" or a list of them')
    found: dict[Address, None] = {}
    for each in value:
        if not isinstance(each, str):
            refuse(name, each, "HOST:PORT as text")
        if each.strip():
            found[_address(name, each.strip())] = None
    if not found:
        refuse(name, value, 'at least one address such as "localhost:9092"')
    return tuple(found)


def _address(name: str, given: str) -> Address:
    if given.lower().startswith(("http://", "https://")):
        refuse(name, given, "HOST:PORT of a broker, which does not speak HTTP")
    address = given.partition("://")[2] or given  # Kafka accepts PLAINTEXT://host:port, too
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT_DEFAULT)
    if (":" in host) != (host[:1] == "[" and host[-1:] == "]"):
        refuse(name, given, "HOST:PORT; an IPv6 address is written in brackets, as in [::1]:9092")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        refuse(name, given, "HOST:PORT with a port from 1 to 65535, such as localhost:9092")
    return Address(host.strip("[]"), int(port))
