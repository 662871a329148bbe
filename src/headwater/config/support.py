"""Settings that this release cannot honour, and that a node must not ignore.

A setting that only tunes something gets a warning (`known`). One that protects data or keeps people
out is different: a node that ignored it would run without the protection its operator relies on.
Such a node refuses to start, before it touches a directory.
"""

from __future__ import annotations

from headwater.config.catalog import broker_definition
from headwater.config.definition import parse
from headwater.config.node import NodeConfig
from headwater.config.values import ConfigError

_PLAINTEXT = "PLAINTEXT"

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PYTHON_PREFIX = "python:"  # before the name of a class of the user's own

# What a node without the feature would do, by setting. Any value but the default is refused.
GUARDS = {
    "alter.config.policy.class.name": "every change of settings would be allowed",
    "client.quota.callback.class": "no quota would apply",
    "create.topic.policy.class.name": "every topic would be allowed",
    "principal.builder.class": "connections would have no user",
    "sasl.client.callback.handler.class": "nobody would be authenticated",
    "sasl.login.callback.handler.class": "nobody would be authenticated",
    "sasl.login.class": "nobody would be authenticated",
    "sasl.oauthbearer.jwt.retriever.class": "no token would be checked",
    "sasl.oauthbearer.jwt.validator.class": "no token would be checked",
    "sasl.server.callback.handler.class": "nobody would be authenticated",
    "security.providers": "the providers would not be used",
    "ssl.client.auth": "clients would not need a certificate",
    "ssl.engine.factory.class": "nothing would be encrypted",
}


def check_supported(config: NodeConfig) -> None:
    """Raises ConfigError for the first setting that a node of this release must refuse."""
    check_security(config)
    if config.value("remote.log.storage.system.enable"):
        raise ConfigError(
            "remote.log.storage.system.enable",
            "true",
            "tiered storage is not supported yet; run directories that use it with Kafka",
        )


# Security


def check_security(config: NodeConfig) -> None:
    """Raises ConfigError for a setting, static or dynamic, that asks for protection."""
    check_protocols(config)
    _check_guards(config)
    _check_authorizer(config)


def check_protocols(config: NodeConfig) -> None:
    """Raises ConfigError for a listener with TLS or SASL."""
    for key, listeners in (
        ("listeners", config.listeners),
        ("advertised.listeners", config.advertised_listeners),
    ):
        for listener in listeners:
            _check_protocol(key, str(listener), listener.name, listener.protocol)
    names = (
        ("inter.broker.listener.name", (config.inter_broker_listener_name,)),
        ("controller.listener.names", config.controller_listener_names),
    )
    for key, used in names:
        for name in used:
            protocol = config.listener_security_protocol_map.get(name, _PLAINTEXT)
            _check_protocol(key, name, name, protocol)


def _check_protocol(key: str, value: str, name: str, protocol: str) -> None:
    if protocol == _PLAINTEXT:
        return
    meaning = "" if name == protocol else f" (listener.security.protocol.map says {protocol})"
    raise ConfigError(
        key,
        value,
        f"TLS and SASL are not supported yet{meaning}, so this would be served in the clear; "
        "use a PLAINTEXT listener on a network you trust",
    )


def _check_authorizer(config: NodeConfig) -> None:
    """Raises ConfigError for an authorizer that is not there."""
    name = config.authorizer_class_name
    if name not in ("", STANDARD_AUTHORIZER) and not name.startswith(PYTHON_PREFIX):
        raise ConfigError(
            "authorizer.class.name",
            name,
            f"expected {STANDARD_AUTHORIZER}, or {PYTHON_PREFIX}MODULE.CLASS for a class of your "
            "own; a node without an authorizer would allow everybody to do everything",
        )


def _check_guards(config: NodeConfig) -> None:
    for key, text in config.layers.merged.items():
        definition = broker_definition(key)
        if definition is None or definition.name not in GUARDS:
            continue
        if text.strip() and parse(definition, text) != definition.default:
            raise ConfigError(
                key,
                text,
                f"not supported yet: {GUARDS[definition.name]}; "
                "remove it only if that is what you want",
            )
