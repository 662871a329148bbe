"""A broker's settings in layers: dynamic, cluster default, file, Kafka's default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.config.catalog import LISTENER_PREFIX, broker_definitions, broker_synonyms
from headwater.config.definition import ConfigSource, parse
from headwater.config.values import ConfigValue


class BrokerLayers:
    """Texts by key. A broker's dynamic settings override the cluster's, those the static ones."""

    __slots__ = ("dynamic_broker", "dynamic_default", "merged", "static")

    def __init__(
        self,
        dynamic_broker: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        static: Mapping[str, str] | None = None,
    ) -> None:
        self.dynamic_broker = dynamic_broker or {}
        self.dynamic_default = dynamic_default or {}
        self.static = static or {}
        self.merged: Mapping[str, str] = _merge(
            self.static, self.dynamic_default, self.dynamic_broker
        )

    def texts(self, key: str) -> Iterator[tuple[str | None, ConfigSource]]:
        """Yields all texts of a key by precedence, Kafka's default last."""
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
        """Returns the effective typed value; raises ConfigError if its text is invalid."""
        definition = broker_definitions()[key]
        return parse(definition, self.merged[key]) if key in self.merged else definition.default

    def listener_value(
        self, listener: str, key: str, mechanism: str | None = None, *, is_exact: bool = False
    ) -> ConfigValue:
        """Returns the most specific value of a setting for a listener; with `is_exact` only one
        that is given for just that, else None."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        names = [] if mechanism is None else [f"{prefix}{mechanism.lower()}.{key}"]
        if mechanism is None or not is_exact:
            names.append(f"{prefix}{key}")
        definition = broker_definitions()[key]
        for name in names:
            if name in self.merged:
                return parse(definition._replace(name=name), self.merged[name])
        return None if is_exact else self.value(key)


def _merge(*layers: Mapping[str, str]) -> dict[str, str]:
    """Merges layers, given in order of increasing precedence.

    A dynamic setting also overrides its synonyms in other units: with log.retention.ms set,
    log.retention.hours of the file is ignored.
    """
    merged = dict(layers[0])
    for layer in layers[1:]:
        for key in layer:
            if not key.startswith(LISTENER_PREFIX):
                for synonym in broker_synonyms(key):
                    merged.pop(synonym, None)
        merged.update(layer)
    return merged
