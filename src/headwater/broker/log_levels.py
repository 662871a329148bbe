"""How much a node writes to its log, changed while it runs (KIP-412). It has one logger, `root`.

A level is not kept: a node starts with the one it was started with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.config_gate import check_is_here
from headwater.config.alter import Alteration, AlterOperation
from headwater.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

ROOT = "root"

# Kafka's names, and which of ours they mean.
_LEVELS = {
    "FATAL": "error",
    "ERROR": "error",
    "WARN": "warn",
    "INFO": "info",
    "DEBUG": "debug",
    "TRACE": "debug",
}


def log_levels(broker: Broker) -> dict[str, str]:
    return {ROOT: broker.log.level.upper()}


def alter_log_levels(
    broker: Broker, name: str, alterations: Sequence[Alteration], *, validate_only: bool
) -> None:
    if any(count > 1 for count in Counter(a.name for a in alterations).values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a logger is named more than once")
    check_is_here(broker, name)
    level: str | None = None
    for logger, operation, value in alterations:
        level = _checked(logger, operation, value)
    if level is not None and not validate_only:
        broker.log.level = level


def _checked(logger: str, operation: AlterOperation, value: str | None) -> str:
    if operation is not AlterOperation.DELETE and value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{logger}: expected a value, not null")
    if operation not in (AlterOperation.SET, AlterOperation.DELETE):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{logger}: a level is no list")
    if logger != ROOT:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no logger {logger!r}, only {ROOT!r}")
    if operation is AlterOperation.DELETE:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{ROOT} has no level to go back to")
    if value not in _LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"level {value!r}, expected one of {', '.join(_LEVELS)}"
        )
    return _LEVELS[value]
