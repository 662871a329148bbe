"""Our bytes against those of Kafka 4.3.1's own message classes.

Each line of `data/protocol_bytes.jsonl` is a message, a version, the fields that are not default,
and the bytes that the Java classes write for them. Ids are url-safe base64, other bytes base64.
"""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from headwater.model import id_from_text
from headwater.protocol import Message, decode, encode
from headwater.protocol.schema import Field, empty, fields_of
from tests.properties.protocol_values import every_class

CORPUS = Path(__file__).parent / "data" / "protocol_bytes.jsonl"
CLASSES = {cls.__name__: cls for cls in every_class()}

Line = tuple[int, dict[str, Any], str]


def lines_by_message() -> list[tuple[str, list[Line]]]:
    with CORPUS.open(encoding="utf-8") as corpus:
        lines = [json.loads(line) for line in corpus]
    return [
        (name, [(version, fields, data) for _, version, fields, data in group])
        for name, group in groupby(lines, key=lambda line: str(line[0]))
    ]


def build(cls: type[Message], values: dict[str, Any]) -> Message:
    """A message from its line: what the line does not name keeps its default."""
    made = empty(cls)
    left = dict(values)
    for field in fields_of(cls):
        if field.name in left:
            value = left.pop(field.name)
            if field.is_array and value is not None:
                setattr(made, field.name, [one(field, element) for element in value])
            else:
                setattr(made, field.name, one(field, value))
    assert not left, f"{cls.__name__} has no {sorted(left)}"
    return made


def one(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.struct is not None:
        return build(field.struct, value)
    assert field.wire is not None
    match field.wire.kind:
        case "uuid":
            return id_from_text(value)
        case "bytes" | "records":
            return b64decode(value)
        case _:
            return value


@pytest.mark.parametrize(("name", "lines"), lines_by_message(), ids=lambda value: str(value)[:40])
def test_our_bytes_are_javas(name: str, lines: list[Line]) -> None:
    cls = CLASSES[name]
    for version, fields, data in lines:
        message = build(cls, fields)
        assert encode(message, version).hex() == data, f"v{version}"
        assert decode(cls, bytes.fromhex(data), version) == message, f"v{version}"


def test_the_corpus_has_every_message_of_4_3() -> None:
    new_in_4_4 = {
        "AbortedTxn",
        "StreamsGroupTopologyDescriptionUpdateRequest",
        "StreamsGroupTopologyDescriptionUpdateResponse",
        "UnregisterControllerRecord",
        "UnregisterControllerRequest",
        "UnregisterControllerResponse",
    }
    assert set(CLASSES) - {name for name, _ in lines_by_message()} == new_in_4_4
