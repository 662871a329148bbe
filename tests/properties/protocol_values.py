"""Messages of every kind, made from their own annotations."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from random import Random
from typing import Any

from hypothesis import strategies as st

from headwater.protocol import Message, records
from headwater.protocol.apis import APIS, request_class, response_class
from headwater.protocol.schema import Field, empty, fields_of

Versioned = tuple[type[Message], int]


def every_class() -> list[type[Message]]:
    """Each request, response and record, but not their parts."""
    found: dict[type[Message], None] = {}
    for key, api in APIS.items():
        if api.versions is not None:
            found[request_class(key)] = found[response_class(key)] = None
    for module in iter_modules(records.__path__):
        for value in vars(import_module(f"{records.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Message) and "API" in vars(value):
                found[value] = None
    found.pop(Message, None)
    return list(found)


def every_version(cls: type[Message]) -> Iterator[int]:
    first, last = cls.VERSIONS
    return iter(range(first, last + 1))


def every_class_and_version() -> list[Versioned]:
    return [(cls, version) for cls in every_class() for version in every_version(cls)]


def label(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


def is_flexible(cls: type[Message], version: int) -> bool:
    return cls.FLEXIBLE is not None and version >= cls.FLEXIBLE


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Messages with any values in the fields this version has.

    Hypothesis draws a seed and no more: drawing each value makes the test ten times as slow, and a
    wrong codec shows in the smallest messages anyhow.
    """
    flexible = is_flexible(cls, version)
    return st.integers(0, 2**32).map(
        lambda seed: random_message(Random(seed), cls, version, flexible=flexible)
    )


def random_message(
    random: Random, cls: type[Message], version: int, *, flexible: bool, tags: bool = True
) -> Message:
    made = empty(cls)
    for field in fields_of(cls):
        if field.exists_in(version):
            value = _value(random, field, version, flexible=flexible, tags=tags)
            # A tagged struct with nothing set is not written, and comes back as None.
            if field.never_null and field.struct is not None and value == empty(field.struct):
                value = None
            setattr(made, field.name, value)
    if flexible and tags and random.random() < 0.1:
        number = random.choice((100, 127, 128, 20_000))
        made.unknown_tags = {number: random.randbytes(random.choice((0, 3, 130)))}
    return made


def _value(random: Random, field: Field, version: int, *, flexible: bool, tags: bool) -> Any:
    may_be_none = field.never_null or field.nullable_in(version)
    if may_be_none and random.random() < 0.25:
        return None
    if field.tag is not None and random.random() < 0.25:
        return field.fresh_default()
    if field.is_array:
        size = random.choice((0, 1, 1, 2, 3))
        if field.wire is not None and random.random() < 0.02:
            size = 150
        return [_one(random, field, version, flexible=flexible, tags=tags) for _ in range(size)]
    return _one(random, field, version, flexible=flexible, tags=tags)


def _one(random: Random, field: Field, version: int, *, flexible: bool, tags: bool) -> Any:
    if field.struct is not None:
        return random_message(random, field.struct, version, flexible=flexible, tags=tags)
    assert field.wire is not None
    match field.wire.kind:
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "uuid":
            return random.randbytes(16)
        case "string":
            return random.choice(
                ("", "a", "orders", "größe €", "x" * random.choice((126, 127, 500)))
            )
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 7, 126, 127, 5000)))
        case kind:
            bits = random.choice((1, 8, field.wire.size * 8))
            bits = min(bits, field.wire.size * 8)
            value = random.getrandbits(bits)
            if not kind.startswith("u") and value >= 1 << (field.wire.size * 8 - 1):
                value -= 1 << (field.wire.size * 8)
            return value
