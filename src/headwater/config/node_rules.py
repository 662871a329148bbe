"""Rules between several settings of a node. Each error names a key and its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.config.listeners import WILDCARDS
from headwater.config.values import ConfigError

if TYPE_CHECKING:
    from headwater.config.node import NodeConfig

_MEBIBYTE = 1 << 20


def check_node(config: NodeConfig) -> None:
    """Raises ConfigError for the first violated rule."""
    _check_identity(config)
    _check_quorum(config)
    _check_listeners(config)
    _check_log(config)
    _check_network(config)
    _check_replication(config)
    _check_groups(config)
    _check_group_bounds(config)


def _require(condition: bool, key: str, value: object, expected: str) -> None:
    if not condition:
        raise ConfigError(key, value, expected)


def _check_identity(config: NodeConfig) -> None:
    broker_id = config.value("broker.id")
    _require(
        broker_id == config.node_id,
        "broker.id",
        broker_id,
        f"expected the same as node.id, {config.node_id}",
    )


def _check_quorum(config: NodeConfig) -> None:
    voters = {voter.node_id for voter in config.controller_quorum_voters}
    listed = ",".join(f"{at.node_id}@{at.host}:{at.port}" for at in config.controller_quorum_voters)
    _require(
        len(voters) == len(config.controller_quorum_voters),
        "controller.quorum.voters",
        listed,
        "expected each node.id once",
    )
    if config.is_controller:
        _require(
            not voters or config.node_id in voters,
            "controller.quorum.voters",
            listed,
            f"expected node.id {config.node_id} among the voters, as this node is a controller; "
            "add it on every node, or set process.roles=broker",
        )
        return
    _require(
        not config.alone,
        "process.roles",
        ",".join(config.process_roles),
        "expected controller.quorum.bootstrap.servers or controller.quorum.voters to say where "
        "the controllers are",
    )
    _require(
        config.node_id not in voters,
        "controller.quorum.voters",
        listed,
        f"expected no voter with node.id {config.node_id}, which is only a broker; give this node "
        "another node.id, or set process.roles=broker,controller",
    )
    _require(
        not config.value("controller.quorum.auto.join.enable"),
        "controller.quorum.auto.join.enable",
        "true",
        "expected false on a node that is only a broker: it cannot vote",
    )


def _check_listeners(config: NodeConfig) -> None:
    listening = {listener.name for listener in config.listeners}
    _ = config.metrics_listener, config.otlp  # they can be parsed
    _check_controller_listeners(config, listening)
    early = config.value("early.start.listeners") or ()
    assert isinstance(early, tuple)
    for name in early:
        _require(
            name.upper() in listening | set(config.controller_listener_names),
            "early.start.listeners",
            name,
            "expected only names that are in listeners or controller.listener.names",
        )
    if not config.is_broker:
        _require(
            not config.broker_listeners,
            "listeners",
            ",".join(map(str, config.listeners)),
            "expected only listeners of controller.listener.names on a node that is not a broker",
        )
    else:
        _check_advertised(config, listening)
    for listener in config.advertised_listeners:
        _require(
            listener.host not in WILDCARDS[1:],
            "advertised.listeners",
            str(listener),
            "expected an address that others can reach, such as this host's name",
        )


def _check_controller_listeners(config: NodeConfig, listening: set[str]) -> None:
    key, names = "controller.listener.names", ",".join(config.controller_listener_names)
    if not config.is_controller:
        _require(
            bool(names),
            key,
            names,
            "expected the name of the controllers' listener, such as CONTROLLER",
        )
        _require(
            not config.controller_listeners,
            key,
            names,
            "expected no name that is in listeners of a node that is only a broker; remove it from "
            "listeners",
        )
        for name in config.controller_listener_names:
            _require(
                name in config.listener_security_protocol_map,
                key,
                name,
                "expected a protocol for it in listener.security.protocol.map",
            )
        return
    _require(
        config.alone or bool(names),
        key,
        names,
        "expected the name of the listener that serves the quorum; add one to listeners, such as "
        "CONTROLLER://:9093, and name it here",
    )
    _require(
        set(config.controller_listener_names) <= listening,
        key,
        names,
        f"expected only names that are in listeners, {','.join(map(str, config.listeners))}",
    )


def _check_advertised(config: NodeConfig, listening: set[str]) -> None:
    advertised = {
        listener.name
        for listener in config.advertised_listeners or config.broker_listeners
        if listener.name not in config.controller_listener_names
    }
    _require(
        bool(advertised),
        "listeners",
        ",".join(map(str, config.listeners)),
        "expected at least one listener that is not in controller.listener.names",
    )
    _require(
        advertised <= listening,
        "advertised.listeners",
        ",".join(map(str, config.advertised_listeners)),
        f"expected only names of {', '.join(sorted(listening))}",
    )
    _require(
        config.inter_broker_listener_name in advertised,
        "inter.broker.listener.name",
        config.inter_broker_listener_name,
        f"expected one of {', '.join(sorted(advertised))}",
    )
    _require(
        "inter.broker.listener.name" not in config.properties
        or "security.inter.broker.protocol" not in config.properties,
        "inter.broker.listener.name",
        config.inter_broker_listener_name,
        "expected only one of this and security.inter.broker.protocol",
    )
    _check_inter_broker_sasl(config)


def _check_inter_broker_sasl(config: NodeConfig) -> None:
    if not config.listener_security_protocol_map[config.inter_broker_listener_name].startswith(
        "SASL"
    ):
        return
    enabled = config.listener_value(config.inter_broker_listener_name, "sasl.enabled.mechanisms")
    mechanism = config.value("sasl.mechanism.inter.broker.protocol")
    assert isinstance(enabled, tuple)
    _require(
        mechanism in enabled,
        "sasl.mechanism.inter.broker.protocol",
        mechanism,
        f"expected one of sasl.enabled.mechanisms, {','.join(enabled)}",
    )


def _check_log(config: NodeConfig) -> None:
    values = config.topic_defaults.values
    _require_range(values, "segment.ms", "log.roll.ms", low=1)
    _require_range(values, "segment.jitter.ms", "log.roll.jitter.ms", low=0)
    retention = values["retention.ms"]
    _require(retention != 0, "log.retention.ms", retention, "expected -1 (forever) or at least 1")
    lag_min, lag_max = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(lag_min, int)
    assert isinstance(lag_max, int)
    _require(
        lag_min <= lag_max,
        "log.cleaner.min.compaction.lag.ms",
        lag_min,
        f"expected at most log.cleaner.max.compaction.lag.ms, {lag_max}",
    )
    _require(
        config.log_cleaner_dedupe_buffer_size > _MEBIBYTE * config.log_cleaner_threads,
        "log.cleaner.dedupe.buffer.size",
        config.log_cleaner_dedupe_buffer_size,
        f"expected more than 1 MiB for each of {config.log_cleaner_threads} cleaner threads",
    )
    _require(
        config.log_cleaner_threads > 0, "log.cleaner.threads", 0, "expected at least 1 at the start"
    )
    for directory in config.cordoned_log_dirs:
        _require(
            directory == "*" or directory in config.log_dirs,
            "cordoned.log.dirs",
            directory,
            "expected * or directories of log.dirs",
        )


def _require_range(values: Mapping[str, object], name: str, key: str, *, low: int) -> None:
    value = values[name]
    assert isinstance(value, int)
    _require(value >= low, key, value, f"expected at least {low}")


def _check_network(config: NodeConfig) -> None:
    _require(
        config.queued_max_request_bytes <= 0
        or config.queued_max_request_bytes >= config.socket_request_max_bytes,
        "queued.max.request.bytes",
        config.queued_max_request_bytes,
        f"expected at least socket.request.max.bytes, {config.socket_request_max_bytes}",
    )
    _require(
        config.max_connections_per_ip > 0 or bool(config.max_connections_per_ip_overrides),
        "max.connections.per.ip",
        config.max_connections_per_ip,
        "expected at least 1 unless max.connections.per.ip.overrides is set",
    )
    _require(
        config.connections_max_idle_ms < 0
        or config.connection_failed_authentication_delay_ms < config.connections_max_idle_ms,
        "connection.failed.authentication.delay.ms",
        config.connection_failed_authentication_delay_ms,
        f"expected less than connections.max.idle.ms, {config.connections_max_idle_ms}",
    )


def _check_replication(config: NodeConfig) -> None:
    wait = config.replica_fetch_wait_max_ms
    for key, value in (
        ("replica.socket.timeout.ms", config.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", config.replica_lag_time_max_ms),
    ):
        _require(wait <= value, key, value, f"expected at least replica.fetch.wait.max.ms, {wait}")


_ASSIGNORS = {
    "group.consumer.assignors": ("uniform", "range"),
    "group.share.assignors": ("simple",),
}
_CODEC_MAX = 4  # none, gzip, snappy, lz4, zstd


def _check_groups(config: NodeConfig) -> None:
    protocols = config.group_coordinator_rebalance_protocols
    _require(
        "classic" in protocols,
        "group.coordinator.rebalance.protocols",
        ",".join(protocols),
        "expected classic among them",
    )
    for key, names in _ASSIGNORS.items():
        given = config.value(key)
        assert isinstance(given, tuple)
        _require(
            set(given) <= set(names),
            key,
            ",".join(given),
            f"expected only {', '.join(names)}",
        )
    for key in (
        "offsets.topic.compression.codec",
        "share.coordinator.state.topic.compression.codec",
    ):
        codec = config.value(key)
        assert isinstance(codec, int)
        _require(0 <= codec <= _CODEC_MAX, key, codec, f"expected 0 to {_CODEC_MAX}")
    _require(
        config.group_share_max_share_sessions >= config.group_share_max_size,
        "group.share.max.share.sessions",
        config.group_share_max_share_sessions,
        f"expected at least group.share.max.size, {config.group_share_max_size}",
    )


# Group settings with a minimum and a maximum among the broker settings.
BOUNDED_GROUP_SETTINGS = (
    ("consumer", "heartbeat.interval.ms"),
    ("consumer", "session.timeout.ms"),
    ("consumer", "assignment.interval.ms"),
    ("share", "heartbeat.interval.ms"),
    ("share", "session.timeout.ms"),
    ("share", "assignment.interval.ms"),
    ("share", "record.lock.duration.ms"),
    ("share", "delivery.count.limit"),
    ("share", "partition.max.record.locks"),
    ("streams", "heartbeat.interval.ms"),
    ("streams", "session.timeout.ms"),
    ("streams", "assignment.interval.ms"),
)


def _check_group_bounds(config: NodeConfig) -> None:
    """Checks that group settings are within their bounds, and heartbeats within sessions."""

    def number(key: str) -> int:
        value = config.value(key)
        assert isinstance(value, int)
        return value

    for kind, setting in BOUNDED_GROUP_SETTINGS:
        key = f"group.{kind}.{setting}"
        low, high = number(f"group.{kind}.min.{setting}"), number(f"group.{kind}.max.{setting}")
        _require(
            low <= high,
            f"group.{kind}.max.{setting}",
            high,
            f"expected at least group.{kind}.min.{setting}, {low}",
        )
        _require(low <= number(key) <= high, key, number(key), f"expected {low} to {high}")
    for kind in ("consumer", "share", "streams"):
        heartbeat = f"group.{kind}.heartbeat.interval.ms"
        session = number(f"group.{kind}.session.timeout.ms")
        _require(
            number(heartbeat) < session,
            heartbeat,
            number(heartbeat),
            f"expected less than group.{kind}.session.timeout.ms, {session}",
        )
    key, high = "group.streams.num.standby.replicas", number("group.streams.max.standby.replicas")
    _require(number(key) <= high, key, number(key), f"expected at most {high}")
