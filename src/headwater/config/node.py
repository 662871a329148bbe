"""The settings of a node, typed: an attribute is its key with `_` for `.`.

The user's settings (a file and `--set`) take precedence over those that `implied` adds, and those
over Kafka's defaults. `broker/node.py` reads the result at the start; a change of a dynamic setting
creates a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.config.catalog import broker_definition, oauth_definition
from headwater.config.definition import parse
from headwater.config.implied import CONTROLLER_LISTENER, implied_properties
from headwater.config.known import warnings_for
from headwater.config.layers import BrokerLayers
from headwater.config.listeners import (
    METRICS_LISTEN,
    PLAINTEXT,
    PORT_MAX,
    SECURITY_PROTOCOLS,
    WILDCARDS,
    Listener,
    Voter,
    parse_connection_overrides,
    parse_host_port,
    parse_listeners,
    parse_protocol_map,
    parse_servers,
    parse_voters,
)
from headwater.config.topic import TopicDefaults
from headwater.config.values import ConfigValue

if TYPE_CHECKING:
    from headwater.config.otlp import OtlpSettings

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class NodeConfig(NamedTuple):
    """All settings of a node, validated one by one and against each other."""

    layers: BrokerLayers
    warnings: tuple[str, ...]
    topic_defaults: TopicDefaults

    # Identity and directories.
    node_id: int
    process_roles: tuple[str, ...]
    broker_rack: str | None
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    cordoned_log_dirs: tuple[str, ...]

    # Listeners and connections.
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    listener_security_protocol_map: Mapping[str, str]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    max_connections: int
    max_connection_creation_rate: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    queued_max_request_bytes: int
    request_timeout_ms: int
    unstable_api_versions_enable: bool
    authorizer_class_name: str

    # Produce, fetch and topics.
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    min_insync_replicas: int

    # The log.
    log_retention_check_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_backoff_ms: int
    num_recovery_threads_per_data_dir: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    # The metadata log and its quorum.
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_max_idle_interval_ms: int
    controller_quorum_voters: tuple[Voter, ...]
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...]
    controller_quorum_election_timeout_ms: int
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_quorum_auto_join_enable: bool

    # Brokers and replication.
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    replica_lag_time_max_ms: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    unclean_leader_election_enable: bool
    unclean_leader_election_interval_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int

    # Groups and offsets.
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_max_size: int
    group_consumer_regex_refresh_interval_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int

    # Share groups.
    group_share_max_size: int
    group_share_max_share_sessions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_min_isr: int

    # Transactions.
    transaction_state_log_num_partitions: int
    add_partitions_to_txn_retry_backoff_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    transaction_partition_verification_enable: bool
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def alone(self) -> bool:
        """Whether no quorum is configured, so that the node is the only voter."""
        return not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        return tuple(at for at in self.listeners if at.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        return tuple(at for at in self.listeners if at.name in self.controller_listener_names)

    @property
    def listener_security_protocols(self) -> tuple[str, ...]:
        """The protocols of all listeners that this node serves or connects to."""
        names = [at.name for at in self.listeners]
        names += [self.inter_broker_listener_name] if self.is_broker else []
        names += self.controller_listener_names[:1]
        return tuple(map(self.protocol_of, names))

    @property
    def controller_endpoints(self) -> tuple[Listener, ...]:
        """The endpoints of this controller in the metadata log: its controller listeners, as they
        are advertised, or, for a node without any, the port after its first listener. Kafka expects
        an endpoint for each voter when it opens the directory."""
        if self.controller_listeners:
            return tuple(self._advertised(at) or at for at in self.controller_listeners)
        port = self.listeners[0].port
        free = port + 1 if 0 < port < PORT_MAX else 0
        return (Listener(CONTROLLER_LISTENER, "PLAINTEXT", "127.0.0.1", free),)

    def reachable(self, at: Listener, *, port: int, host_name: Callable[[], str]) -> Listener:
        """Returns one of `listeners`, which is bound to `port`, as other nodes and clients reach
        it: as it is advertised, else at its own host, else by the host's name."""
        told = self._advertised(at) or at
        host = host_name() if told.host in WILDCARDS else told.host
        return told._replace(host=host, port=told.port if told is not at and told.port else port)

    def _advertised(self, at: Listener) -> Listener | None:
        return next((told for told in self.advertised_listeners if told.name == at.name), None)

    @property
    def metrics_listener(self) -> tuple[str, int] | None:
        """The host and port where metrics are served, if they are."""
        text = str(self.value(METRICS_LISTEN) or "")
        return parse_host_port(METRICS_LISTEN, text) if text else None

    @property
    def otlp(self) -> OtlpSettings | None:
        """The collector to which metrics are exported, if any."""
        from headwater.config.otlp import otlp_settings

        return otlp_settings(self.value)

    @property
    def properties(self) -> Mapping[str, str]:
        """The static settings of DescribeConfigs: the user's and the implied ones."""
        return self.layers.static

    def value(self, key: str) -> ConfigValue:
        """Returns the effective value of any broker setting, also of one without an attribute."""
        return self.layers.value(key)

    def listener_value(self, listener: str, key: str, mechanism: str | None = None) -> ConfigValue:
        """Returns the value of a setting for one listener and SASL mechanism: the most specific of
        `listener.name.NAME.MECHANISM.key`, `listener.name.NAME.key` and `key`."""
        return self.layers.listener_value(listener, key, mechanism)

    def listener_only(self, listener: str, key: str, mechanism: str | None = None) -> ConfigValue:
        """Returns the value that is set for just this listener, or just this mechanism of it."""
        return self.layers.listener_value(listener, key, mechanism, is_exact=True)

    def protocol_of(self, listener: str) -> str:
        """Returns the security protocol of a listener, which may be one of other nodes."""
        return self.listener_security_protocol_map.get(listener, PLAINTEXT)


def node_config(
    properties: Mapping[str, str] | None = None,
    *,
    dynamic_broker: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
) -> NodeConfig:
    """Returns the settings of a node; raises ConfigError for the first invalid one."""
    from headwater.config.node_rules import check_node

    given = dict(properties or {})
    warnings = warnings_for(given)
    layers = BrokerLayers(
        dynamic_broker or {}, dynamic_default or {}, given | implied_properties(given)
    )
    for key, text in layers.merged.items():
        definition = broker_definition(key) or oauth_definition(key)
        if definition is not None:
            parse(definition._replace(name=key), text)
    addresses = _addresses(layers, map_given="listener.security.protocol.map" in given)
    values: dict[str, Any] = {
        name: addresses[name] if name in addresses else layers.value(name.replace("_", "."))
        for name in _ATTRIBUTES
    }
    config = NodeConfig(
        layers=layers, warnings=tuple(warnings), topic_defaults=TopicDefaults(layers), **values
    )
    check_node(config)
    return config


_ATTRIBUTES = NodeConfig._fields[3:]


def _addresses(layers: BrokerLayers, *, map_given: bool) -> dict[str, Any]:
    """Parses the settings with structure: listeners, voters, directories."""

    def items(key: str) -> tuple[str, ...]:
        value = layers.value(key)
        assert value is None or isinstance(value, tuple), key
        return value or ()

    protocols = parse_protocol_map(
        "listener.security.protocol.map", str(layers.value("listener.security.protocol.map"))
    )
    controllers = tuple(name.upper() for name in items("controller.listener.names"))
    listening = items("listeners")
    if not map_given and not _uses_other_protocols(listening, controllers):
        # Without a configured map, controller listeners may have any name and are PLAINTEXT.
        protocols |= {name: "PLAINTEXT" for name in controllers if name not in protocols}
    log_dirs = tuple(map(_directory, items("log.dirs") or items("log.dir")))
    overrides_key = "max.connections.per.ip.overrides"
    return {
        "listener_security_protocol_map": protocols,
        "controller_listener_names": controllers,
        "listeners": parse_listeners("listeners", listening, protocols),
        "advertised_listeners": parse_listeners(
            "advertised.listeners", items("advertised.listeners"), protocols, ports_differ=False
        ),
        "inter_broker_listener_name": str(
            layers.value("inter.broker.listener.name")
            or layers.value("security.inter.broker.protocol")
        ).upper(),
        "controller_quorum_voters": parse_voters(
            "controller.quorum.voters", items("controller.quorum.voters")
        ),
        "controller_quorum_bootstrap_servers": parse_servers(
            "controller.quorum.bootstrap.servers", items("controller.quorum.bootstrap.servers")
        ),
        "max_connections_per_ip_overrides": parse_connection_overrides(
            overrides_key, str(layers.value(overrides_key))
        ),
        "log_dirs": log_dirs,
        "metadata_log_dir": _directory(str(layers.value("metadata.log.dir") or log_dirs[0])),
    }


def _directory(path: str) -> str:
    """Normalizes a path, because directories are compared by name."""
    return path.rstrip("/") or "/"


def _uses_other_protocols(listening: tuple[str, ...], controllers: tuple[str, ...]) -> bool:
    names = {item.partition("://")[0].upper() for item in listening} | set(controllers)
    return bool(names & set(SECURITY_PROTOCOLS[1:]))
