"""DescribeConfigs: every setting of a resource, with its value and its sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headwater.config.catalog import (
    TOPIC_SYNONYMS,
    broker_definition,
    broker_definitions,
    broker_synonyms,
    client_metrics_definitions,
    group_definitions,
    group_synonym,
    topic_definitions,
)
from headwater.config.definition import ConfigDef, ConfigSource, parse, render
from headwater.config.layers import BrokerLayers
from headwater.config.topic import TopicDefaults
from headwater.config.values import ConfigType, LookedUp, shown


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """A setting in the response. `synonyms` lists all sources of its value by precedence."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


def describe_topic(
    overrides: Mapping[str, str], layers: BrokerLayers, defaults: TopicDefaults | None = None
) -> list[DescribedConfig]:
    """Describes a topic. `defaults` saves time if the caller has them for these layers."""
    values = (defaults or TopicDefaults(layers)).values
    entries = []
    for name, definition in topic_definitions().items():
        if definition.internal and name not in overrides:
            continue
        synonyms = _topic_synonyms(name, layers)
        value = render(definition, values[name])
        if name in overrides:
            value = render(definition, parse(definition, overrides[name]))
            synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_TOPIC), *synonyms)
        entries.append(_entry(definition, value, synonyms))
    return entries


def describe_broker(layers: BrokerLayers) -> list[DescribedConfig]:
    """Describes one broker: the known settings, and all others in its layers."""
    definitions = broker_definitions()
    entries = []
    for name, definition in definitions.items():
        if not definition.internal or name in layers.merged:
            text = layers.merged.get(name)
            if isinstance(text, LookedUp):
                value: str | None = shown(text)
            else:
                value = render(definition, layers.value(name))
            entries.append(_entry(definition, value, _broker_synonyms(name, layers)))
    entries += [_extra(name, layers) for name in layers.merged if name not in definitions]
    return entries


def describe_broker_defaults(dynamic_default: Mapping[str, str]) -> list[DescribedConfig]:
    """Describes the dynamic defaults of all brokers: the broker resource without a name."""
    entries = []
    for name, text in dynamic_default.items():
        definition = broker_definition(name)
        sensitive = definition is None or definition.sensitive
        value = None if sensitive else text
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        entries.append(
            DescribedConfig(
                name=name,
                value=value,
                read_only=_is_read_only(name),
                source=source,
                is_sensitive=sensitive,
                synonyms=(Synonym(name, value, source),),
                type=definition.type if definition else ConfigType.UNKNOWN,
                documentation=definition.doc if definition and definition.name == name else None,
            )
        )
    return entries


def describe_group(overrides: Mapping[str, str], layers: BrokerLayers) -> list[DescribedConfig]:
    """Describes a group; most settings have their default from the broker."""
    entries = []
    for name, definition in group_definitions().items():
        key = group_synonym(name)
        if key is None:
            value = definition.default_text
            synonyms: tuple[Synonym, ...] = (Synonym(name, value, ConfigSource.DEFAULT),)
        else:
            value = render(definition, layers.value(key))
            synonyms = _broker_synonyms(key, layers)
        if name in overrides:
            value = render(definition, parse(definition, overrides[name]))
            synonyms = (Synonym(name, value, ConfigSource.GROUP), *synonyms)
        entries.append(_entry(definition, value, synonyms))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Describes a client metrics subscription."""
    entries = []
    for name, definition in client_metrics_definitions().items():
        if name in overrides:
            value = render(definition, parse(definition, overrides[name]))
            source = Synonym(name, value, ConfigSource.CLIENT_METRICS)
            entries.append(_entry(definition, value, (source,)))
        else:
            entries.append(_entry(definition, definition.default_text, ()))
    return entries


def describe_loggers(levels: Mapping[str, str]) -> list[DescribedConfig]:
    """Describes the levels of a broker's loggers."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [
        DescribedConfig(
            name=name,
            value=level,
            read_only=False,
            source=source,
            is_sensitive=False,
            synonyms=(),
            type=ConfigType.UNKNOWN,
            documentation="",
        )
        for name, level in levels.items()
    ]


def _entry(
    definition: ConfigDef, value: str | None, synonyms: tuple[Synonym, ...]
) -> DescribedConfig:
    return DescribedConfig(
        name=definition.name,
        value=None if definition.sensitive else value,
        read_only=definition.read_only,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_sensitive=definition.sensitive,
        synonyms=synonyms,
        type=definition.type,
        documentation=definition.doc,
    )


def _extra(name: str, layers: BrokerLayers) -> DescribedConfig:
    """Describes a key outside the table: a listener's override, or an unknown one, which is
    hidden."""
    definition = broker_definition(name)
    sensitive = definition is None or definition.sensitive
    synonyms = _broker_synonyms(name, layers)
    return DescribedConfig(
        name=name,
        value=None if sensitive else shown(layers.merged[name]),
        read_only=_is_read_only(name),
        source=synonyms[0].source,
        is_sensitive=sensitive,
        synonyms=synonyms,
        type=definition.type if definition else ConfigType.UNKNOWN,
        documentation=None,
    )


def _is_read_only(name: str) -> bool:
    """Whether Kafka reports a key as read-only: all but its dynamic settings, so every listener
    override."""
    definition = broker_definitions().get(name)
    return definition is None or definition.read_only


def _topic_synonyms(name: str, layers: BrokerLayers) -> tuple[Synonym, ...]:
    """Returns the broker settings that Kafka lists for a topic setting: only the first, in ms or
    bytes."""
    behind = TOPIC_SYNONYMS.get(name)
    return _broker_synonyms(behind[0][0], layers) if behind else ()


def _broker_synonyms(name: str, layers: BrokerLayers) -> tuple[Synonym, ...]:
    """Returns all sources of a setting's value, by layer and then by name.

    Kafka lists only entries from the first one under the setting's own name on, so a value that
    exists only as log.retention.hours is not a synonym of log.retention.ms.
    """
    definition = broker_definition(name)
    sensitive = definition is None or definition.sensitive
    found = [
        Synonym(synonym, None if sensitive or text is None else shown(text), source)
        for synonym in broker_synonyms(name)
        for text, source in layers.texts(synonym)
    ]
    found.sort(key=lambda synonym: synonym.source)  # stable: names keep their order in a layer
    while found and found[0].name != name:
        del found[0]
    return tuple(found)
