"""Validation of the settings of a resource after an alteration.

Each function takes all settings after the change and raises the ApiError that Kafka returns.
Handlers and the controller call them before a record is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headwater.config.catalog import (
    client_metrics_definitions,
    group_definitions,
    topic_definitions,
)
from headwater.config.definition import ConfigDef, parse
from headwater.config.known import suggestion
from headwater.config.layers import BrokerLayers
from headwater.config.node_rules import BOUNDED_GROUP_SETTINGS
from headwater.config.topic import TopicDefaults
from headwater.config.values import ConfigError, ConfigValue
from headwater.errors import ApiError, ErrorCode

_AS_RETENTION = -2
_METRICS_INTERVAL_MS = range(100, 3_600_001)
_METRICS_MATCHES = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def validate_topic_configs(
    configs: Mapping[str, str | None],
    defaults: TopicDefaults,
    *,
    existing: Mapping[str, str] | None = None,
    remote_storage_enabled: bool = False,
) -> None:
    """Refuses a topic's new overrides with INVALID_CONFIG. `existing` are those it had before."""
    values = defaults.values | _parse_all(configs, topic_definitions(), "topics")
    lag_min, lag_max = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(lag_min, int)
    assert isinstance(lag_max, int)
    if lag_min > lag_max:
        raise refusal(
            "min.compaction.lag.ms", lag_min, f"expected at most max.compaction.lag.ms, {lag_max}"
        )
    if values["remote.storage.enable"]:
        _check_remote_storage(values, remote_storage_enabled=remote_storage_enabled)
        return
    was_enabled = (existing or {}).get("remote.storage.enable", "").strip().lower() == "true"
    if was_enabled and not values["remote.log.delete.on.disable"]:
        # Data that exists only in the remote store must not be lost by accident.
        raise refusal(
            "remote.storage.enable",
            "false",
            "expected remote.log.delete.on.disable=true with it, or "
            "remote.log.copy.disable=true instead, which keeps the remote data",
        )


def _check_remote_storage(values: Mapping[str, Any], *, remote_storage_enabled: bool) -> None:
    if not remote_storage_enabled:
        raise refusal(
            "remote.storage.enable", "true", "tiered storage is not supported yet; expected false"
        )
    if "compact" in values["cleanup.policy"]:
        policy = ",".join(values["cleanup.policy"])
        raise refusal("cleanup.policy", policy, "expected delete where remote.storage.enable=true")
    check_local_retention(values)
    if values["remote.log.copy.disable"]:
        for unit in ("bytes", "ms"):
            local, whole = values[f"local.retention.{unit}"], values[f"retention.{unit}"]
            if local not in (_AS_RETENTION, whole):
                raise refusal(
                    f"local.retention.{unit}",
                    local,
                    f"expected the same as retention.{unit}, {whole}, "
                    "where remote.log.copy.disable=true",
                )


def check_local_retention(values: Mapping[str, Any], prefix: str = "") -> None:
    """Refuses a local retention above the total retention."""
    for unit in ("bytes", "ms"):
        local, whole = values[f"local.retention.{unit}"], values[f"retention.{unit}"]
        if whole < 0 or local == _AS_RETENTION:
            continue
        if local < 0 or local > whole:
            raise refusal(
                f"{prefix}local.retention.{unit}",
                local,
                f"expected at most {prefix}retention.{unit}, {whole}",
            )


def validate_group_configs(configs: Mapping[str, str | None], layers: BrokerLayers) -> None:
    """Refuses a group's new settings with INVALID_CONFIG if they exceed the broker's bounds."""
    values = _parse_all(configs, group_definitions(), "groups")

    def number(name: str) -> int:
        value = values[name] if name in values else layers.value(f"group.{name}")
        assert isinstance(value, int)
        return value

    def bound(key: str) -> int:
        value = layers.value(key)
        assert isinstance(value, int)
        return value

    for kind, setting in BOUNDED_GROUP_SETTINGS:
        name = f"{kind}.{setting}"
        if name in values:
            low = bound(f"group.{kind}.min.{setting}")
            high = bound(f"group.{kind}.max.{setting}")
            if not low <= number(name) <= high:
                raise refusal(name, number(name), f"expected {low} to {high}")
    if "streams.num.standby.replicas" in values:
        high = bound("group.streams.max.standby.replicas")
        standby = number("streams.num.standby.replicas")
        if standby > high:
            raise refusal("streams.num.standby.replicas", standby, f"expected at most {high}")
    for kind in ("consumer", "share", "streams"):
        heartbeat = number(f"{kind}.heartbeat.interval.ms")
        session = number(f"{kind}.session.timeout.ms")
        if heartbeat >= session:
            raise refusal(
                f"{kind}.heartbeat.interval.ms",
                heartbeat,
                f"expected less than {kind}.session.timeout.ms, {session}",
            )


def validate_client_metrics(configs: Mapping[str, str | None]) -> None:
    """Refuses a subscription's new settings, with the same two error codes as Kafka."""
    for name, text in configs.items():
        if name not in client_metrics_definitions():
            raise refusal(
                name,
                text,
                "not a client metrics setting",
                code=ErrorCode.INVALID_REQUEST,
            )
    values = _parse_all(configs, client_metrics_definitions(), "client metrics")
    interval = values.get("interval.ms")
    if interval is not None and interval not in _METRICS_INTERVAL_MS:
        raise refusal(
            "interval.ms", interval, "expected 100 to 3600000", code=ErrorCode.INVALID_REQUEST
        )
    matches = values.get("match", ())
    assert isinstance(matches, tuple)
    for match in matches:
        name, _, pattern = (part.strip() for part in match.partition("="))
        if name not in _METRICS_MATCHES or not pattern or "=" in pattern or not _compiles(pattern):
            names = ", ".join(_METRICS_MATCHES)
            raise refusal("match", match, f"expected name=pattern with one of the names {names}")


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _parse_all(
    configs: Mapping[str, str | None], definitions: Mapping[str, ConfigDef], kind: str
) -> dict[str, ConfigValue]:
    values: dict[str, ConfigValue] = {}
    for name, text in configs.items():
        if name not in definitions:
            raise refusal(name, text, f"unknown setting of {kind}{suggestion(name, definitions)}")
        if text is None:
            raise refusal(name, "null", f"expected a value, not null, for a setting of {kind}")
        try:
            values[name] = parse(definitions[name], text)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return values


def refusal(
    key: str, value: object, expected: str, *, code: ErrorCode = ErrorCode.INVALID_CONFIG
) -> ApiError:
    return ApiError(code, str(ConfigError(key, value, expected)))
