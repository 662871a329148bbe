"""Settings: Kafka's names, types, defaults and rules, for nodes, topics, groups and subscriptions.

`node_config` reads a node's settings, `TopicDefaults` and `topic_config` a topic's. Modules that
only admin requests need are not imported here: `describe` builds DescribeConfigs responses, `alter`
applies operations, `validate` and `validate_broker` check the result. Nothing here does I/O.
"""

from __future__ import annotations

from headwater.config.catalog import (
    broker_definition,
    broker_definitions,
    client_metrics_definitions,
    group_definitions,
    topic_definitions,
)
from headwater.config.definition import (
    ConfigDef,
    ConfigSource,
    Importance,
    UpdateMode,
    parse,
    render,
)
from headwater.config.layers import BrokerLayers
from headwater.config.listeners import Listener, Voter
from headwater.config.node import NodeConfig, node_config
from headwater.config.properties import parse_properties
from headwater.config.topic import TopicConfig, TopicDefaults, topic_config
from headwater.config.values import ConfigError, ConfigType, ConfigValue

__all__ = [
    "BrokerLayers",
    "ConfigDef",
    "ConfigError",
    "ConfigSource",
    "ConfigType",
    "ConfigValue",
    "Importance",
    "Listener",
    "NodeConfig",
    "TopicConfig",
    "TopicDefaults",
    "UpdateMode",
    "Voter",
    "broker_definition",
    "broker_definitions",
    "client_metrics_definitions",
    "group_definitions",
    "node_config",
    "parse",
    "parse_properties",
    "render",
    "topic_config",
    "topic_definitions",
]
