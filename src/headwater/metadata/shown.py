"""Metadata records as people read them: the fields by name, secrets hidden.

Secrets are the keys of SCRAM users, and values of settings that are passwords or of which this
release does not know that they are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.config.catalog import (
    broker_definition,
    client_metrics_definitions,
    group_definitions,
    topic_definitions,
)
from headwater.config.definition import ConfigDef
from headwater.metadata.model import ResourceType
from headwater.metadata.records import RecordType, decode_record
from headwater.model import id_text
from headwater.protocol import DecodeError, Message
from headwater.protocol.schema import Field, fields_of

HIDDEN = "[hidden]"
_WITH_SECRETS = (RecordType.CONFIG, RecordType.USER_SCRAM_CREDENTIAL)
_FRAMES_WITH_SECRETS = frozenset(bytes((1, number)) for number in _WITH_SECRETS)
_DEFINITIONS: dict[int, Callable[[str], ConfigDef | None]] = {
    ResourceType.TOPIC: lambda name: topic_definitions().get(name),
    ResourceType.BROKER: broker_definition,
    ResourceType.GROUP: lambda name: group_definitions().get(name),
    ResourceType.CLIENT_METRICS: lambda name: client_metrics_definitions().get(name),
}

Shown = dict[str, Any]
"""The fields of a record by name, after `type`, which is the name of its class."""


def shown_record(value: bytes, *, secrets: bool = False) -> Shown | str | bytes:
    """Returns a metadata record by its fields. One that cannot be read, for instance of a newer
    release, is hidden as a whole unless secrets are shown."""
    try:
        record = decode_record(value)
    except DecodeError as malformed:
        return value if secrets else f"[hidden: {len(value)} bytes, {malformed}]"
    return _fields(record, hidden=not secrets and _has_secret(record))


def has_secret(value: bytes) -> bool:
    """Returns whether these bytes are a metadata record with a secret, wherever they come from, or
    may be one that cannot be read."""
    if value[:2] not in _FRAMES_WITH_SECRETS:
        return False
    try:
        return _has_secret(decode_record(value))
    except DecodeError:
        return True


def _has_secret(record: Message) -> bool:
    if record.API not in _WITH_SECRETS:
        return False
    if record.API != RecordType.CONFIG:
        return True
    config: Any = record
    find = _DEFINITIONS.get(config.resource_type)
    definition = find(config.name) if find is not None else None
    return config.value is not None and (definition is None or definition.sensitive)


def _fields(record: Message, *, hidden: bool) -> Shown:
    shown: Shown = {"type": type(record).__name__}
    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        is_hidden = hidden and field.sensitive and value is not None
        shown[field.name] = HIDDEN if is_hidden else _plain(value, field)
    return shown


def _plain(value: Any, field: Field) -> Any:
    match value:
        case list():
            return [_plain(each, field) for each in value]
        case Message():
            return {
                inner.name: _plain(getattr(value, inner.name), inner)
                for inner in fields_of(type(value))
            }
        case bytes() if field.wire is not None and field.wire.kind == "uuid":
            return id_text(value)
        case _:
            return value
