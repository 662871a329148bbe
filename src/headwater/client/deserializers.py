"""Kafka's own deserializers by the names of their Java classes, for settings that move here."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from headwater.client import config_values as read

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
        raise ValueError(f"{data!r} is neither 0 nor 1")
    return data == b"\1"


# None: the bytes as they are.
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
    """How the setting is read: a function, or the name of one of Kafka's classes."""
    if not isinstance(value, str):
        return read.function(name, value)
    simple = value.strip().removeprefix(_PACKAGE)
    if simple not in _KNOWN:
        read.refuse(name, value, f"a function, None, or one of Kafka's own: {', '.join(_KNOWN)}")
    return _KNOWN[simple]
