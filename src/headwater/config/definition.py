"""Definitions of settings: name, type, default, rule and update mode.

The tables in `tables/` list Kafka's settings as text, two lines each; `read_table` parses them on
first use.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from headwater.config.rules import ListOf, Rule, rule_from_text
from headwater.config.values import ConfigError, ConfigType, ConfigValue, parse_value, render_value

NO_MEANING = "; no meaning here: "


class Importance(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(StrEnum):
    """Whether and for whom a setting may change while the node runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigSource(IntEnum):
    """The source of a value, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


# This package uses named tuples instead of dataclasses: they load several times faster, and every
# command loads the settings first.
class ConfigDef(NamedTuple):
    """One setting. `supported`: Headwater acts on it; `internal`: not shown to admins."""

    name: str
    type: ConfigType
    default: ConfigValue
    importance: Importance
    update_mode: UpdateMode
    supported: bool
    internal: bool
    required: bool
    rule: Rule | None
    doc: str

    @property
    def why_without_meaning(self) -> str | None:
        """The reason why the setting never has an effect here, from its documentation."""
        return self.doc.rstrip(".").partition(NO_MEANING)[2] or None

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def read_only(self) -> bool:
        return self.update_mode is UpdateMode.READ_ONLY

    @property
    def default_text(self) -> str | None:
        return render_value(self.type, self.default)


def parse(definition: ConfigDef, text: str | None) -> ConfigValue:
    """Returns the typed value of `text`; raises ConfigError if the rule does not allow it."""
    value = parse_value(definition.name, definition.type, text)
    if isinstance(definition.rule, ListOf) and isinstance(value, tuple):
        value = tuple(dict.fromkeys(value))  # Kafka ignores duplicate items
    if definition.rule is not None:
        expected = definition.rule.expected_instead_of(value)
        if expected is not None:
            raise ConfigError(definition.name, text, expected, secret=definition.sensitive)
    return value


def render(definition: ConfigDef, value: ConfigValue) -> str | None:
    """Returns the text of a value as DescribeConfigs shows it."""
    return render_value(definition.type, value)


_IMPORTANCE = {"H": Importance.HIGH, "M": Importance.MEDIUM, "L": Importance.LOW}
_MODES = {
    "fixed": UpdateMode.READ_ONLY,
    "broker": UpdateMode.PER_BROKER,
    "cluster": UpdateMode.CLUSTER_WIDE,
}


def read_table(table: str) -> dict[str, ConfigDef]:
    """Returns the settings of a table by name, in its order.

    The first line of each is `name TYPE default importance mode marks [rule]`, the second its
    documentation. Marks: `+` Headwater acts on it, `-` not yet; `i` after it means internal.
    """
    lines = table.strip("\n").split("\n")
    definitions: dict[str, ConfigDef] = {}
    for head, doc in zip(lines[::2], lines[1::2], strict=True):
        name, kind, default, importance, mode, marks, *rule = head.split()
        config_type = ConfigType[kind]
        definitions[name] = ConfigDef(
            name=name,
            type=config_type,
            default=_default(name, config_type, default),
            importance=_IMPORTANCE[importance],
            update_mode=_MODES[mode],
            supported=marks[0] == "+",
            internal=marks[1:] == "i",
            required=default == "required",
            rule=rule_from_text(rule[0]) if rule else None,
            doc=doc.strip(),
        )
    return definitions


def _default(name: str, kind: ConfigType, text: str) -> ConfigValue:
    if text in ("null", "required"):
        return None
    return parse_value(name, kind, "" if text == '""' else text)
