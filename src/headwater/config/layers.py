"""A broker's settings in layers: dynamic, cluster default, file, Kafka's default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.config.catalog import broker_definitions
from headwater.config.definition import ConfigSource, parse
from headwater.config.values import ConfigValue


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """Texts by key. What is above hides what is below it."""

    dynamic_broker: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)

    def texts(self, key: str) -> Iterator[tuple[str | None, ConfigSource]]:
        """Every text given for a key, the strongest first, Kafka's default last."""
        if key in self.dynamic_broker:
            yield self.dynamic_broker[key], ConfigSource.DYNAMIC_BROKER
        if key in self.dynamic_default:
            yield self.dynamic_default[key], ConfigSource.DYNAMIC_DEFAULT_BROKER
        if key in self.static:
            yield self.static[key], ConfigSource.STATIC_BROKER
        definition = broker_definitions().get(key)
        if definition is not None and definition.default is not None:
            yield definition.default_text, ConfigSource.DEFAULT

    def value(self, key: str) -> ConfigValue:
        """The typed value in force; ConfigError if its text is not allowed."""
        definition = broker_definitions()[key]
        for layer in (self.dynamic_broker, self.dynamic_default, self.static):
            if key in layer:
                return parse(definition, layer[key])
        return definition.default
