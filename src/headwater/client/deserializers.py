"""Kafka's own deserializers by the names of their Java classes, and the types they produce."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.client import config_values as read

# The types of keys and values, for `Consumer[K, V]`: Any without a deserializer. Only type checkers
# need the default, which the interpreter knows from Python 3.13 on.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_PACKAGE = "org.apache.kafka.common.serialization."


def _number(form: str) -> Callable[[bytes], Any]:
    packed = struct.Struct(form)
    return lambda data: packed.unpack(data)[0]


def _text(data: bytes) -> str:
    return bytes(data).decode()


def _uuid(data: bytes) -> UUID:
    return UUID(_text(data))


def _truth(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"{data!r}: expected a byte 0 or 1")
    return data == b"\1"


# None stands for the bytes themselves.
_KNOWN: dict[str, Callable[[bytes], Any] | None] = {
    "ByteArrayDeserializer": None,
    "ByteBufferDeserializer": None,
    "BytesDeserializer": None,
    "StringDeserializer": _text,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "BooleanDeserializer": _truth,
    "UUIDDeserializer": _uuid,
}


def deserializer(name: str, value: Any) -> Callable[[bytes], Any] | None:
    """Reads the setting: a function, or the name of one of Kafka's classes."""
    if not isinstance(value, str):
        return read.function(name, value)
    simple = value.strip().removeprefix(_PACKAGE)
    if simple not in _KNOWN:
        read.refuse(name, value, f"a function, None, or one of Kafka's: {', '.join(_KNOWN)}")
    return _KNOWN[simple]
