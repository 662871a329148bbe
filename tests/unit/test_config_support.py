"""Settings that a node refuses because it cannot honour them yet."""

from __future__ import annotations

import pytest

from headwater.config import ConfigError, node_config
from headwater.config.node import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from headwater.config.support import STANDARD_AUTHORIZER, check_supported

DATA = {"log.dirs": "/d"}
COMBINED = {
    "log.dirs": "/d",
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


def refused(settings: dict[str, str]) -> ConfigError:
    config = node_config(settings)
    with pytest.raises(ConfigError) as error:
        check_supported(config)
    return error.value


@pytest.mark.parametrize(
    "settings",
    [
        DATA,
        COMBINED,
        COMBINED | {"controller.quorum.voters": "1@anywhere:9093"},
        COMBINED | {"controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093"},
        COMBINED | {"controller.quorum.bootstrap.servers": "localhost:9093"},
        COMBINED | {"controller.quorum.bootstrap.servers": "a:9093,b:9093"},
        COMBINED | {"ssl.client.auth": "required"},
        COMBINED | {"authorizer.class.name": ""},
        COMBINED | {"ssl.keystore.location": "/k"},
        COMBINED | {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"},
        COMBINED
        | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,X:SSL"},
    ],
)
def test_a_node_that_asks_for_no_protection_starts(settings: dict[str, str]) -> None:
    check_supported(node_config(settings))


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_listener_for_kerberos_is_refused_with_the_key_to_set(protocol: str) -> None:
    secured = {
        "listeners": f"{protocol}://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": protocol,
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
    }
    error = refused(COMBINED | secured)
    assert (error.key, error.value) == ("sasl.enabled.mechanisms", "GSSAPI")
    assert "SCRAM-SHA-512" in error.expected
    chosen = {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
    check_supported(node_config(COMBINED | secured | chosen))


def test_a_mechanism_that_does_not_exist_is_refused() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,USERS://:9094,CONTROLLER://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5",
    }
    assert refused(COMBINED | settings).value == "DIGEST-MD5"


def test_connections_between_nodes_need_a_mechanism_that_exists() -> None:
    settings = COMBINED | {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "controller.quorum.voters": "1@anywhere:9093",
    }
    assert refused(settings).key == "sasl.mechanism.controller.protocol"


_OF_OAUTHBEARER = "listener.name.plaintext.oauthbearer.sasl.oauthbearer"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client.quota.callback.class", "com.example.Quotas"),
        ("ssl.engine.factory.class", "com.example.Engines"),
        ("sasl.server.callback.handler.class", "com.example.Handler"),
        ("listener.name.plaintext.plain.sasl.server.callback.handler.class", "com.example.Handler"),
        (f"{_OF_OAUTHBEARER}.jwt.validator.class", "com.example.Validator"),
        (f"{_OF_OAUTHBEARER}.jwt.retriever.class", "com.example.Retriever"),
        ("remote.log.storage.system.enable", "true"),
    ],
)
def test_a_setting_that_guards_something_is_refused(key: str, value: str) -> None:
    error = refused(COMBINED | {key: value})
    assert (error.key, error.value) == (key, value)
    assert "not supported yet" in error.expected
    assert "\n" not in str(error)


def test_settings_of_oauthbearer_count_behind_the_mechanism_and_nowhere_else() -> None:
    """Kafka's handlers look there first, for all of their settings."""
    with_effect = {f"{_OF_OAUTHBEARER}.expected.issuer": "https://issuer"}
    assert node_config(COMBINED | with_effect).warnings == ()
    for key in ("plain.sasl.oauthbearer.expected.issuer", "oauthbearer.ssl.keystore.location"):
        (warning,) = node_config(COMBINED | {f"listener.name.plaintext.{key}": "x"}).warnings
        assert f"{key} has no effect" in warning
    with pytest.raises(ConfigError, match=r"oauthbearer\.sasl\.oauthbearer\.clock\.skew"):
        node_config(COMBINED | {f"{_OF_OAUTHBEARER}.clock.skew.seconds": "many"})


@pytest.mark.parametrize("name", ["", "python:guards.Authorizer", STANDARD_AUTHORIZER])
def test_an_authorizer_is_kafkas_or_a_python_class(name: str) -> None:
    check_supported(node_config(COMBINED | {"authorizer.class.name": name}))


@pytest.mark.parametrize(
    "name", ["kafka.security.authorizer.AclAuthorizer", "com.example.Authorizer", "guards.Mine"]
)
def test_another_authorizer_is_refused(name: str) -> None:
    error = refused(COMBINED | {"authorizer.class.name": name})
    assert (error.key, error.value) == ("authorizer.class.name", name)
    assert STANDARD_AUTHORIZER in error.expected


@pytest.mark.parametrize("name", ["", LEADER_SELECTOR, RACK_AWARE_SELECTOR])
def test_a_replica_selector_is_one_of_kafkas(name: str) -> None:
    check_supported(node_config(COMBINED | {"replica.selector.class": name}))


def test_another_replica_selector_is_refused() -> None:
    error = refused(COMBINED | {"replica.selector.class": "com.example.Selector"})
    assert (error.key, error.value) == ("replica.selector.class", "com.example.Selector")
    assert RACK_AWARE_SELECTOR in error.expected


def test_settings_of_the_authorizer_have_no_effect_without_one() -> None:
    settings = COMBINED | {"super.users": "User:root"}
    (warning,) = node_config(settings).warnings
    assert warning == "super.users has no effect: authorizer.class.name is not set"
    settings["authorizer.class.name"] = STANDARD_AUTHORIZER
    assert node_config(settings).warnings == ()


@pytest.mark.parametrize("kind", ["alter.config", "create.topic"])
def test_a_policy_is_a_python_class(kind: str) -> None:
    key = f"{kind}.policy.class.name"
    check_supported(node_config(COMBINED | {key: "python:company.Policy"}))
    error = refused(COMBINED | {key: "com.example.Policy"})
    assert error.key == key
    assert "python:MODULE.CLASS" in error.expected


_KAFKAS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_OF_LISTENER = "listener.name.plaintext.principal.builder.class"


@pytest.mark.parametrize("key", ["principal.builder.class", _OF_LISTENER])
def test_a_principal_builder_is_kafkas_or_a_python_class(key: str) -> None:
    for name in (_KAFKAS, "python:company.Builder"):
        check_supported(node_config(COMBINED | {key: name}))
    error = refused(COMBINED | {key: "com.example.Builder"})
    assert error.key == key
    assert "python:MODULE.CLASS" in error.expected


@pytest.mark.parametrize(
    ("static", "dynamic"),
    [
        ({}, {_OF_LISTENER: "python:company.Builder"}),
        ({"principal.builder.class": "python:company.Builder"}, {_OF_LISTENER: _KAFKAS}),
        ({_OF_LISTENER: "python:company.Builder"}, {_OF_LISTENER: "python:other.Builder"}),
    ],
)
def test_only_the_file_of_a_node_changes_its_principal_builder(
    static: dict[str, str], dynamic: dict[str, str]
) -> None:
    config = node_config(COMBINED | static, dynamic_broker=dynamic)
    with pytest.raises(ConfigError, match="only the node's own file"):
        check_supported(config)
    check_supported(node_config(COMBINED | static, dynamic_broker=dict(static)))
