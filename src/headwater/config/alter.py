"""The operations of IncrementalAlterConfigs on a resource's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headwater.config.definition import ConfigDef
from headwater.config.validate import refusal
from headwater.config.values import ConfigType
from headwater.errors import ApiError, ErrorCode


class AlterOperation(IntEnum):
    """Operations on a setting, by the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    operation: AlterOperation
    value: str | None


def altered(
    current: Mapping[str, str],
    alterations: Iterable[Alteration],
    definitions: Mapping[str, ConfigDef],
) -> dict[str, str]:
    """Returns the settings after the operations; `validate` checks whether they are allowed."""
    configs = dict(current)
    for name, operation, value in alterations:
        if operation is AlterOperation.DELETE:
            configs.pop(name, None)
            continue
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: expected a value, not null")
        if operation is AlterOperation.SET:
            configs[name] = value
        else:
            parts = _parts(configs, name, value, definitions)
            configs[name] = ",".join(_changed(parts, operation, value.split(",")))
    return configs


def _parts(
    configs: Mapping[str, str], name: str, value: str, definitions: Mapping[str, ConfigDef]
) -> list[str]:
    """Returns the current items of a list setting: its own, or those of its default."""
    definition = definitions.get(name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise refusal(
            name, value, "expected a setting that is a list to append to or subtract from"
        )
    text = configs.get(name, definition.default_text) or ""
    return [part for part in text.split(",") if part]


def _changed(parts: list[str], operation: AlterOperation, items: list[str]) -> list[str]:
    if operation is AlterOperation.SUBTRACT:
        return [part for part in parts if part not in items]
    return parts + [item for item in dict.fromkeys(items) if item not in parts]
