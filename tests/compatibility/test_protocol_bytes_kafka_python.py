"""Our bytes against kafka-python's: what it reads from them is what we meant, and it writes the
same again."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from random import Random
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage

from headwater.protocol import Message, encode
from headwater.protocol.schema import fields_of
from tests.properties.protocol_values import (
    every_class,
    every_version,
    is_flexible,
    label,
    random_message,
)

# What kafka-python calls otherwise, or shows otherwise: authorized operations are sets there.
OTHER_NAMES = {
    "authorized_operations",
    "cluster_authorized_operations",
    "topic_authorized_operations",
    "enable_2pc",
    "generation_id_or_member_epoch",
    "node_id",
    "cluster_id",
}


def their_classes() -> dict[str, Any]:
    found = {}
    for module in walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            for value in vars(import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, ApiMessage):
                    found[value.__name__] = value
    return found


THEIRS = their_classes()
SHARED = [cls for cls in every_class() if cls.__name__ in THEIRS]


def assert_same(ours: Message, theirs: Any, version: int) -> None:
    for field in fields_of(type(ours)):
        if not field.exists_in(version) or field.name in OTHER_NAMES:
            continue
        value, other = getattr(ours, field.name), getattr(theirs, field.name)
        if value is None or field.never_null:
            continue
        if field.struct is not None:
            pairs = zip(value, other, strict=True) if field.is_array else [(value, other)]
            for one, twin in pairs:
                assert_same(one, twin, version)
        elif field.wire is not None and field.wire.kind not in ("uuid", "records", "bytes"):
            assert value == other, f"{type(ours).__name__}.{field.name}"


def test_kafka_python_shares_more_than_a_hundred_messages() -> None:
    assert len(SHARED) > 100


@pytest.mark.parametrize("cls", SHARED, ids=label)
def test_our_bytes_are_kafka_pythons(cls: type[Message]) -> None:
    theirs = THEIRS[cls.__name__]
    for version in every_version(cls):
        if version > theirs.max_version:
            continue
        for seed in range(4):
            flexible = is_flexible(cls, version)
            ours = random_message(Random(seed), cls, version, flexible=flexible, tags=False)
            if cls.__name__ == "ApiVersionsResponse":
                # With any error it reads the rest as version 0, as KIP-511 has it.
                ours.error_code = 0  # type: ignore[attr-defined]
            data = encode(ours, version)
            read = theirs.decode(data, version=version)
            assert_same(ours, read, version)
            read._header = None  # it writes no message that has none
            assert read.encode(version=version) == data, f"v{version}"
