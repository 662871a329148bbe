"""Validation of the dynamic settings of a broker, or of all brokers, after an alteration.

Kafka returns INVALID_REQUEST here where INVALID_CONFIG would be expected (KAFKA-13609), and tools
rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headwater.config.catalog import LISTENER_OVERRIDE, broker_definitions
from headwater.config.definition import ConfigDef, UpdateMode, parse
from headwater.config.node import NodeConfig, node_config
from headwater.config.support import check_security
from headwater.config.validate import check_local_retention, refusal
from headwater.config.values import ConfigError, ConfigType
from headwater.errors import ApiError, ErrorCode

# A listener's limits may be set for all brokers; its other overrides are settings of one broker.
_CLUSTER_WIDE_IN_LISTENER = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)

# Keys that must be set for one listener, because a change reloads only that listener.
_ONLY_IN_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

# Sizes of thread pools: one change may at most halve or double them.
_POOLS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)

# A broker may start with 0, but it cannot be changed to 0.
_AT_LEAST_ONE = frozenset({"max.connection.creation.rate", "max.connections"})

# Only Kafka's own classes are accepted.
_LISTS_OF_CLASSES = frozenset({"metric.reporters"})
_OWN_CLASSES = "org.apache.kafka."

# Quotas that are broker settings but not in their table.
_QUOTAS = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


# What only the broker itself can validate, which it does before it asks the controller.
LISTENER_KEYS = ("listeners", "listener.security.protocol.map")
OF_SECURITY = re.compile(r"(^|\.)(ssl|sasl)\.")


def validate_broker_configs(
    configs: Mapping[str, str],
    current: NodeConfig,
    *,
    per_broker: bool,
    is_own: bool = True,
    eligible_leader_replicas: bool = False,
) -> None:
    """Refuses the new dynamic settings of a broker or, without `per_broker`, of the cluster.

    `current` are the effective settings of the node that validates, which are those of another node
    unless `is_own`. Unknown keys pass, as in Kafka: a plugin may read them.
    """
    for key, text in configs.items():
        _check_key(key, text, per_broker=per_broker)
    if per_broker and eligible_leader_replicas and "min.insync.replicas" in configs:
        raise refusal(
            "min.insync.replicas",
            configs["min.insync.replicas"],
            "expected only for the cluster or a topic while eligible leader replicas are enabled",
        )
    layers = current.layers
    if not is_own:
        configs = {
            key: text
            for key, text in configs.items()
            if key not in LISTENER_KEYS and not OF_SECURITY.search(key)
        }
    dynamic_broker = configs if per_broker else layers.dynamic_broker
    dynamic_default = layers.dynamic_default if per_broker else configs
    try:
        changed = node_config(
            layers.static, dynamic_broker=dynamic_broker, dynamic_default=dynamic_default
        )
        check_security(changed)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    _check_changes(current, changed)


def _check_key(key: str, text: str, *, per_broker: bool) -> None:
    override = LISTENER_OVERRIDE.fullmatch(key)
    name = override[1] if override else key
    definition = broker_definitions().get(name)
    if key in _QUOTAS:
        _check_quota(key, text)
    if definition is None:
        return
    if not override and definition.read_only:
        raise _refused(key, text, "expected a setting that can be changed dynamically")
    if not override and key in _ONLY_IN_LISTENER:
        raise _refused(key, text, f"expected it for one listener, as listener.name.NAME.{key}")
    _check_value(definition, text)
    if name in _AT_LEAST_ONE and int(text) == 0:
        raise _refused(key, text, "expected at least 1")
    _check_classes(definition, key, text)
    if override:
        belongs_to_one = name not in _CLUSTER_WIDE_IN_LISTENER
    else:
        belongs_to_one = definition.update_mode is UpdateMode.PER_BROKER
    if belongs_to_one and not per_broker:
        raise _refused(key, text, "expected it for one broker, not for all brokers")


def _check_quota(key: str, text: str) -> None:
    if not text.strip().isdigit() or int(text) >= 1 << 63:
        raise _refused(key, text, "expected a number of bytes per second, at least 0")


def _check_value(definition: ConfigDef, text: str) -> None:
    try:
        parse(definition, text)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _check_classes(definition: ConfigDef, key: str, text: str) -> None:
    if definition.name in _LISTS_OF_CLASSES:
        classes = [item.strip() for item in text.split(",") if item.strip()]
    elif definition.type is ConfigType.CLASS:
        classes = [text] if text.strip() else []
    else:
        return
    for name in classes:
        if not name.startswith(_OWN_CLASSES):
            raise _refused(key, text, f"class {name} cannot be found, expected one of Kafka's")


def _check_changes(current: NodeConfig, changed: NodeConfig) -> None:
    for key in _POOLS:
        before, after = current.value(key), changed.value(key)
        assert isinstance(before, int)
        assert isinstance(after, int)
        if before != after and not before // 2 <= after <= before * 2:
            raise _refused(key, after, f"expected {before // 2} to {before * 2}, now {before}")
    if current.topic_defaults.values != changed.topic_defaults.values:
        try:
            check_local_retention(changed.topic_defaults.values, prefix="log.")
        except ApiError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from error


def _refused(key: str, value: object, expected: str) -> ApiError:
    return refusal(key, value, expected, code=ErrorCode.INVALID_REQUEST)
