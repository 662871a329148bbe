"""NodeConfig: what a node assumes, what it takes, what it refuses."""

from __future__ import annotations

import re

import pytest

from headwater.config import ConfigError, Listener, Voter, node_config

PAIR = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@a:9093,2@b:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "log.dirs": "/data",
}


def test_a_node_without_settings_runs_alone_on_loopback() -> None:
    config = node_config()
    assert config.node_id == 1
    assert config.process_roles == ("broker", "controller")
    assert config.alone
    assert config.broker_listeners == (Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
    assert config.controller_listeners == ()
    assert (
        "CONTROLLER" not in config.properties["listeners"]
    )  # DescribeConfigs shows open ones only
    assert config.controller_endpoints == (Listener("CONTROLLER", "PLAINTEXT", "127.0.0.1", 9093),)
    assert config.advertised_listeners == ()
    assert config.warnings == ()


def test_a_node_alone_keeps_one_copy_of_internal_topics_unless_told_otherwise() -> None:
    config = node_config({"offsets.topic.replication.factor": "2"})
    assert config.offsets_topic_replication_factor == 2
    assert config.transaction_state_log_replication_factor == 1
    assert config.transaction_state_log_min_isr == 1
    assert config.share_coordinator_state_topic_replication_factor == 1
    assert config.share_coordinator_state_topic_min_isr == 1


def test_a_node_of_a_quorum_keeps_kafkas_copies() -> None:
    config = node_config(PAIR)
    assert not config.alone
    assert config.controller_quorum_voters == (Voter(1, "a", 9093), Voter(2, "b", 9093))
    assert config.offsets_topic_replication_factor == 3
    assert config.transaction_state_log_min_isr == 2


def test_a_controller_without_a_listener_is_one_port_above_the_first() -> None:
    assert node_config({"listeners": "PLAINTEXT://:19092"}).controller_endpoints[0].port == 19093
    assert node_config({"listeners": "PLAINTEXT://:0"}).controller_endpoints[0].port == 0
    assert node_config({"listeners": "PLAINTEXT://:65535"}).controller_endpoints[0].port == 0


def test_an_old_broker_id_is_taken_as_the_node_id() -> None:
    assert node_config({"broker.id": "7"}).node_id == 7
    with pytest.raises(ConfigError, match=r"broker\.id=7"):
        node_config({"broker.id": "7", "node.id": "8"})


def test_the_metadata_log_stands_in_the_first_directory_unless_told_otherwise() -> None:
    config = node_config({"log.dirs": "/a, /b", "log.dir": "/c"})
    assert config.log_dirs == ("/a", "/b")
    assert config.metadata_log_dir == "/a"
    assert node_config({"log.dir": "/c", "metadata.log.dir": "/m"}).metadata_log_dir == "/m"


def test_a_listener_without_a_host_means_every_interface_and_names_are_capitals() -> None:
    (listener,) = node_config({"listeners": "plaintext://:9092"}).broker_listeners
    assert listener == Listener("PLAINTEXT", "PLAINTEXT", "", 9092)
    (listener,) = node_config({"listeners": "PLAINTEXT://[::1]:9092"}).broker_listeners
    assert (listener.host, str(listener)) == ("::1", "PLAINTEXT://[::1]:9092")


def test_dynamic_settings_lie_over_the_file() -> None:
    config = node_config(
        {"max.connections": "5"},
        dynamic_broker={"max.connections": "7"},
        dynamic_default={"max.connections": "6", "log.retention.ms": "1000"},
    )
    assert config.max_connections == 7
    assert config.topic_defaults.config().retention_ms == 1000


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("num.io.threads", "one event loop"),
        ("socket.connection.setup.timeout.ms", "does not support this"),
        ("group.streams.assignors", "does not support this"),
        ("zookeeper.connect", "removed from Kafka"),
        ("retention.ms", r"log\.retention\.ms"),
        ("ssl.keystore.locaton", r"did you mean ssl\.keystore\.location"),
        ("listener.name.inside.ssl.engine.factory.class", "does not support this"),
        ("rsm.config.bucket", "unknown setting"),
    ],
)
def test_a_key_that_kafka_knows_is_taken_with_one_warning(key: str, words: str) -> None:
    value = "4" if key.startswith(("num.", "socket.")) else "x"
    (warning,) = node_config({key: value}).warnings
    assert warning.startswith(key)
    assert re.search(words, warning)


def test_a_key_that_nobody_knows_is_refused_with_the_closest_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean log\.retention\.ms\?"):
        node_config({"log.retention.mss": "5"})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"node.id": "3"}, "controller.quorum.voters"),
        ({"process.roles": "broker", "node.id": "2"}, "controller.quorum.voters"),
        ({"process.roles": "broker", "node.id": "5"}, "controller.listener.names"),
        ({"process.roles": "controller"}, "listeners"),
        ({"process.roles": "keeper"}, "process.roles"),
        ({"process.roles": "broker", "controller.quorum.voters": ""}, "process.roles"),
        ({"controller.quorum.voters": "1@a"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, "controller.quorum.voters"),
        ({"controller.listener.names": ""}, "controller.listener.names"),
        (
            {"process.roles": "broker", "node.id": "5", "controller.listener.names": ""},
            "controller.listener.names",
        ),
        (
            {
                "process.roles": "broker",
                "node.id": "5",
                "listeners": "PLAINTEXT://:9092",
                "controller.quorum.auto.join.enable": "true",
            },
            "controller.quorum.auto.join.enable",
        ),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name"),
        ({"advertised.listeners": "CONTROLLER://h:9093"}, "listeners"),
        ({"advertised.listeners": "PLAINTEXT://[::]:9092"}, "advertised.listeners"),
        ({"listeners": "PLAINTEXT://h:9092"}, "controller.listener.names"),
        ({"listeners": "PLAINTEXT://h:1,CONTROLLER://h:1"}, "listeners"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2,CONTROLLER://h:3"}, "listeners"),
        ({"listeners": "FOO://h:1,CONTROLLER://h:2"}, "listeners"),
        ({"listeners": "PLAINTEXT://h:70000,CONTROLLER://h:2"}, "listeners"),
        ({"listeners": "9092"}, "listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners"),
        ({"advertised.listeners": "SSL://h:9092"}, "advertised.listeners"),
        ({"inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name"),
        ({"security.inter.broker.protocol": "SSL"}, "inter.broker.listener.name"),
        ({"log.retention.hours": "0"}, "log.retention.ms"),
        ({"log.roll.ms": "0"}, "log.roll.ms"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "log.cleaner.dedupe.buffer.size"),
        ({"log.dirs": "/a,,/b"}, "log.dirs"),
        ({"cordoned.log.dirs": "/other"}, "cordoned.log.dirs"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        ({"connections.max.idle.ms": "50"}, "connection.failed.authentication.delay.ms"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms"),
        ({"group.consumer.session.timeout.ms": "44999"}, "group.consumer.session.timeout.ms"),
        ({"group.streams.num.standby.replicas": "3"}, "group.streams.num.standby.replicas"),
        ({"group.share.max.share.sessions": "9"}, "group.share.max.share.sessions"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance"),
        ({"offsets.topic.compression.codec": "9"}, "offsets.topic.compression.codec"),
        ({"num.network.threads": "x"}, "num.network.threads"),
        ({"listener.name.plaintext.max.connections": "x"}, "listener.name.plaintext.max"),
    ],
)
def test_what_kafka_refuses_is_refused_by_name(changes: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        node_config(PAIR | changes)
    assert refused.value.key.startswith(key)


@pytest.mark.parametrize("key", ["node.id", "process.roles"])
def test_a_node_of_a_quorum_must_be_told_who_it_is(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        node_config({name: value for name, value in PAIR.items() if name != key})
    assert refused.value.key == key


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://127.0.0.1:9092"},
        {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
        {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093"},
        {"advertised.listeners": "PLAINTEXT://public:1,CONTROLLER://public:2"},
        {"process.roles": "broker", "node.id": "5", "listeners": "PLAINTEXT://:9092"},
        {"process.roles": "controller", "listeners": "CONTROLLER://:9093"},
        {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "h:9093"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    ],
)
def test_what_kafka_takes_is_taken(changes: dict[str, str]) -> None:
    node_config(PAIR | changes)


@pytest.mark.parametrize(
    ("changes", "host", "port"),
    [
        ({}, "127.0.0.1", 5),
        ({"listeners": "PLAINTEXT://kafka1:0,CONTROLLER://:0"}, "kafka1", 5),
        ({"listeners": "PLAINTEXT://:0,CONTROLLER://:0"}, "this.host", 5),
        ({"listeners": "PLAINTEXT://0.0.0.0:0,CONTROLLER://:0"}, "this.host", 5),
        ({"advertised.listeners": "PLAINTEXT://public:19092"}, "public", 19092),
        ({"advertised.listeners": "PLAINTEXT://:19092"}, "this.host", 19092),
        ({"advertised.listeners": "PLAINTEXT://public:0"}, "public", 5),
    ],
)
def test_a_listener_is_registered_at_an_address_that_others_can_reach(
    changes: dict[str, str], host: str, port: int
) -> None:
    config = node_config(PAIR | changes)
    (listener,) = config.broker_listeners
    found = config.reachable(listener, port=5, host_name=lambda: "this.host")
    assert found == Listener("PLAINTEXT", "PLAINTEXT", host, port)


def test_a_controller_is_registered_where_it_is_advertised() -> None:
    advertised = "PLAINTEXT://public:1,CONTROLLER://public:2"
    (endpoint,) = node_config(PAIR | {"advertised.listeners": advertised}).controller_endpoints
    assert str(endpoint) == "CONTROLLER://public:2"


def test_the_most_specific_setting_of_a_listener_counts() -> None:
    key = "connections.max.reauth.ms"
    settings = {
        key: "1",
        f"listener.name.users.{key}": "2",
        f"listener.name.users.plain.{key}": "3",
    }
    config = node_config(settings)
    assert config.listener_value("OTHERS", key, "PLAIN") == 1
    assert config.listener_value("USERS", key) == 2
    assert config.listener_value("USERS", key, "SCRAM-SHA-256") == 2
    assert config.listener_value("USERS", key, "PLAIN") == 3
    assert config.listener_only("USERS", key, "SCRAM-SHA-256") is None
    assert config.warnings == ()
    (warning,) = node_config({"listener.name.users.log.retention.ms": "1"}).warnings
    assert "not a setting of listeners" in warning
