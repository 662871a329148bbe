"""Settings that this release cannot honour, and that a node must not ignore.

A setting that only tunes something gets a warning (`known`). One that protects data or keeps people
out is different: a node that ignored it would run without the protection its operator relies on.
Such a node refuses to start, before it touches a directory.
"""

from __future__ import annotations

import re

from headwater.config.catalog import broker_definition, oauth_definition
from headwater.config.definition import parse
from headwater.config.listeners import PLAINTEXT, SASL_MECHANISMS, Listener
from headwater.config.node import LEADER_SELECTOR, RACK_AWARE_SELECTOR, NodeConfig
from headwater.config.values import ConfigError

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PYTHON_PREFIX = "python:"  # before the name of a class of the user's own
_PRINCIPAL_BUILDER = "principal.builder.class"

# What a node without the feature would do, by setting. Any value but the default is refused.
GUARDS = {
    "client.quota.callback.class": "no quota would apply",
    "sasl.client.callback.handler.class": "nobody would be authenticated",
    "sasl.login.callback.handler.class": "nobody would be authenticated",
    "sasl.login.class": "nobody would be authenticated",
    "sasl.oauthbearer.jwt.retriever.class": "no token would be checked",
    "sasl.oauthbearer.jwt.validator.class": "no token would be checked",
    "sasl.server.callback.handler.class": "nobody would be authenticated",
    "security.providers": "the providers would not be used",
    "ssl.engine.factory.class": "nothing would be encrypted",
}

_OAUTH = "org.apache.kafka.common.security.oauthbearer."

# Classes of Kafka's whose work a node does itself: they may be named, and nothing else.
_BUILT_IN = {
    "sasl.login.callback.handler.class": (
        f"{_OAUTH}OAuthBearerLoginCallbackHandler",
        f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        f"{_OAUTH}ClientCredentialsJwtRetriever",
        f"{_OAUTH}DefaultJwtRetriever",
        f"{_OAUTH}FileJwtRetriever",
        f"{_OAUTH}JwtBearerJwtRetriever",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        f"{_OAUTH}BrokerJwtValidator",
        f"{_OAUTH}DefaultJwtValidator",
    ),
    "sasl.server.callback.handler.class": (
        f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
        f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler",
    ),
}
_OTHER_MECHANISM = re.compile(r"\.(plain|gssapi|scram-sha-\d+)\.sasl\.", re.IGNORECASE)


def check_supported(config: NodeConfig) -> None:
    """Raises ConfigError for the first setting that a node of this release must refuse."""
    check_security(config)
    selector = config.replica_selector_class
    if selector not in (None, "", LEADER_SELECTOR, RACK_AWARE_SELECTOR):
        raise ConfigError(
            "replica.selector.class", selector, f"expected {RACK_AWARE_SELECTOR} or nothing"
        )
    if config.value("remote.log.storage.system.enable"):
        raise ConfigError(
            "remote.log.storage.system.enable",
            "true",
            "tiered storage is not supported yet; run directories that use it with Kafka",
        )


# Security

_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1|\[::1\]", re.IGNORECASE)


def is_loopback(host: str) -> bool:
    return _LOOPBACK.fullmatch(host) is not None


def open_listeners(config: NodeConfig) -> list[Listener]:
    """Returns the listeners beyond loopback that need no authentication."""
    return [
        at
        for at in config.listeners
        if not is_loopback(at.host)
        and not at.protocol.startswith("SASL")
        and (
            at.protocol == PLAINTEXT
            or config.listener_value(at.name, "ssl.client.auth") != "required"
        )
    ]


def check_security(config: NodeConfig) -> None:
    """Raises ConfigError for a setting, static or dynamic, whose protection is not there."""
    check_mechanisms(config)
    _check_guards(config)
    _check_authorizer(config)
    _check_policies(config)
    _check_principal_builders(config)


def check_mechanisms(config: NodeConfig) -> None:
    """Raises ConfigError for a SASL mechanism that nobody could log in with."""
    for at in config.listeners:
        if not at.protocol.startswith("SASL"):
            continue
        key = "sasl.enabled.mechanisms"
        enabled = config.listener_value(at.name, key)
        assert isinstance(enabled, tuple)
        for mechanism in enabled or ("",):
            _check_mechanism(key, mechanism, f"listener {at.name}")
    brokers = config.inter_broker_listener_name
    if config.is_broker and config.protocol_of(brokers).startswith("SASL"):
        key = "sasl.mechanism.inter.broker.protocol"
        _check_mechanism(key, str(config.value(key)), "connections between brokers")
    for name in config.controller_listener_names[:1]:
        if config.protocol_of(name).startswith("SASL") and not config.alone:
            key = "sasl.mechanism.controller.protocol"
            _check_mechanism(key, str(config.value(key)), "connections to controllers")


def _check_mechanism(key: str, mechanism: str, where: str) -> None:
    if mechanism in SASL_MECHANISMS:
        return
    why = "Kerberos is not supported" if mechanism == "GSSAPI" else "unknown mechanism"
    raise ConfigError(
        key, mechanism, f"{why}; for {where} set {key} to one of {', '.join(SASL_MECHANISMS)}"
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


def _check_policies(config: NodeConfig) -> None:
    """Raises ConfigError for a policy that is not a Python class: Kafka has none of its own."""
    for key in ("alter.config.policy.class.name", "create.topic.policy.class.name"):
        name = config.value(key)
        if name and not str(name).startswith(PYTHON_PREFIX):
            raise ConfigError(
                key,
                str(name),
                f"expected {PYTHON_PREFIX}MODULE.CLASS; a node without its policy would allow what "
                "the policy refuses",
            )


def _check_principal_builders(config: NodeConfig) -> None:
    """Raises ConfigError for a principal builder that is not there, or that the API names: the
    classes of a node are its own file's to name."""
    static = config.layers.static
    for key, text in config.layers.merged.items():
        definition = broker_definition(key)
        if definition is None or definition.name != _PRINCIPAL_BUILDER:
            continue
        if not text.startswith(PYTHON_PREFIX) and text.strip() != definition.default:
            raise ConfigError(
                key,
                text,
                f"expected {definition.default}, or {PYTHON_PREFIX}MODULE.CLASS for a class of "
                "your own; a node without its principal builder would let users in by other names",
            )
        in_file = static.get(key, static.get(_PRINCIPAL_BUILDER, definition.default_text))
        if text.strip() != str(in_file).strip():
            raise ConfigError(key, text, f"expected {in_file}; only the node's own file changes it")


def _check_guards(config: NodeConfig) -> None:
    for key, text in config.layers.merged.items():
        definition = broker_definition(key) or oauth_definition(key)
        if definition is None or definition.name not in GUARDS:
            continue
        built_in = _BUILT_IN.get(definition.name, ())
        if text.strip() in built_in and not _OTHER_MECHANISM.search(key):
            continue
        if text.strip() and parse(definition, text) != definition.default:
            raise ConfigError(
                key,
                text,
                f"not supported yet: {GUARDS[definition.name]}; "
                "remove it only if that is what you want",
            )
