"""Configs of topics, brokers, groups and client metrics: values, their sources, and changes. A
change is incremental: configs that are not named stay as they are.

    await admin.alter_config(topic_config("orders"), {"retention.ms": 3_600_000,
                                                      "cleanup.policy": Append("compact"),
                                                      "segment.bytes": None})  # the default
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headwater.client.admin.results import check, known, only, outcome
from headwater.client.errors import ClientError, error_for
from headwater.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.protocol.messages.list_config_resources import ListConfigResourcesRequest

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_TYPES_SINCE = 1  # before this version only client metrics are listed: nothing else existed


class ResourceType(IntEnum):
    """The type of a resource that has configs, with Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource that has configs. A broker's name is its id; `""` stands for all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}".rstrip()


def topic_config(name: str) -> ConfigResource:
    """Returns the resource of a topic, for `describe_config` and `alter_config`."""
    return ConfigResource(ResourceType.TOPIC, name)


def broker_config(node_id: int | None = None) -> ConfigResource:
    """Returns the resource of one broker, or of the defaults of all brokers."""
    return ConfigResource(ResourceType.BROKER, "" if node_id is None else str(node_id))


def group_config(group_id: str) -> ConfigResource:
    """Returns the resource of a consumer group."""
    return ConfigResource(ResourceType.GROUP, group_id)


def client_metrics_config(name: str) -> ConfigResource:
    """Returns the resource of a client metrics subscription (KIP-714)."""
    return ConfigResource(ResourceType.CLIENT_METRICS, name)


class ConfigSource(IntEnum):
    """The source of a value; the first of these that has one wins."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4  # of the broker: server.properties
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A source that could supply the value, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config: its value and where it comes from. A sensitive value is never told."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    type: str | None = None
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT

    @property
    def is_own(self) -> bool:
        """Whether it was set on this resource itself."""
        return self.source in _OWN

    @property
    def default(self) -> str | None:
        """The default, if the cluster tells it."""
        if self.is_default:
            return self.value
        for each in self.synonyms:
            if each.source is ConfigSource.DEFAULT:
                return each.value
        return None


_OWN = frozenset(
    {
        ConfigSource.TOPIC,
        ConfigSource.BROKER,
        ConfigSource.CLIENT_METRICS,
        ConfigSource.GROUP,
        ConfigSource.BROKER_LOGGER,
    }
)


@dataclass(frozen=True, slots=True)
class Append:
    """Elements to add to a config that is a list."""

    value: str


@dataclass(frozen=True, slots=True)
class Subtract:
    """Elements to remove from a config that is a list."""

    value: str


# A value, None for the default, or what to add to or remove from a list.
ConfigChange = str | int | float | bool | Append | Subtract | None


def config_text(value: object) -> str | None:
    """Returns a value as Kafka writes it: True is `true`."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_entry(
    name: str, value: str | None, *, source: int, is_read_only: bool, is_sensitive: bool
) -> ConfigEntry:
    return ConfigEntry(name, value, known(ConfigSource, source), is_read_only, is_sensitive)


async def describe_config(
    admin: Admin,
    resource: ConfigResource,
    *,
    names: Iterable[str] | None = None,
    documentation: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, ConfigEntry]:
    """Returns the configs of one topic, broker or group, by name."""
    return only(
        await describe_configs(
            admin, [resource], names=names, documentation=documentation, timeout_ms=timeout_ms
        )
    )


async def describe_configs(
    admin: Admin,
    resources: Iterable[ConfigResource],
    *,
    names: Iterable[str] | None = None,
    documentation: bool = False,
    timeout_ms: int | None = None,
) -> dict[ConfigResource, dict[str, ConfigEntry] | ClientError]:
    """Returns the configs of each resource; with `names`, only these."""
    keys = None if names is None else list(names)

    async def ask(
        node: Connection, wanted: Sequence[ConfigResource], deadline: float
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | ClientError]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=each.type, resource_name=each.name, configuration_keys=keys
                )
                for each in wanted
            ],
            include_synonyms=True,
            include_documentation=documentation,
        )
        answer = await admin._router.ask(node, request, deadline)
        return {
            ConfigResource(known(ResourceType, each.resource_type), each.resource_name): _described(
                each
            )
            for each in answer.results
        }

    def patience(resource: ConfigResource) -> float:
        is_topic = resource.type is ResourceType.TOPIC
        return admin._router.patience(resource.name) if is_topic else 0.0

    return await admin._router.by_node(
        resources, _node_of, ask, timeout_ms=timeout_ms, patience=patience
    )


def _described(result: DescribeConfigsResult) -> dict[str, ConfigEntry] | ClientError:
    if result.error_code:
        resource = ConfigResource(known(ResourceType, result.resource_type), result.resource_name)
        return error_for(result.error_code, str(resource), result.error_message)
    return {
        each.name: ConfigEntry(
            name=each.name,
            value=each.value,
            source=known(ConfigSource, each.config_source),
            is_read_only=each.read_only,
            is_sensitive=each.is_sensitive,
            type=_TYPES.get(each.config_type),
            documentation=each.documentation or None,
            synonyms=tuple(
                ConfigSynonym(other.name, other.value, known(ConfigSource, other.source))
                for other in each.synonyms
            ),
        )
        for each in sorted(result.configs, key=lambda each: each.name)
    }


def _node_of(resource: ConfigResource) -> int | None:
    """Returns the broker that must be asked: the broker itself, or any for the rest."""
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name:
        if not resource.name.isdigit():
            raise ValueError(f"{resource}: expected the number of a broker")
        return int(resource.name)
    return None


async def alter_config(
    admin: Admin,
    resource: ConfigResource,
    changes: Mapping[str, ConfigChange],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Changes configs of one topic, broker or group: all of them, or none."""
    only(
        await alter_configs(
            admin, {resource: changes}, validate_only=validate_only, timeout_ms=timeout_ms
        )
    )


async def alter_configs(
    admin: Admin,
    changes: Mapping[ConfigResource, Mapping[str, ConfigChange]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[ConfigResource, ClientError | None]:
    """Changes configs of each resource; returns the error of each, or None."""

    async def ask(
        node: Connection, wanted: Sequence[ConfigResource], deadline: float
    ) -> dict[ConfigResource, ClientError | None]:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=each.type,
                    resource_name=each.name,
                    configs=[_alterable(name, change) for name, change in changes[each].items()],
                )
                for each in wanted
            ],
            validate_only=validate_only,
        )
        answer = await admin._router.ask(node, request, deadline)
        results: dict[ConfigResource, ClientError | None] = {}
        for each in answer.responses:
            resource = ConfigResource(known(ResourceType, each.resource_type), each.resource_name)
            results[resource] = outcome(each.error_code, str(resource), each.error_message)
        return results

    return await admin._router.by_node(list(changes), _node_of, ask, timeout_ms=timeout_ms)


def _alterable(name: str, change: ConfigChange) -> AlterableConfig:
    match change:
        case None:
            return AlterableConfig(name=name, config_operation=_DELETE, value=None)
        case Append(value):
            return AlterableConfig(name=name, config_operation=_APPEND, value=value)
        case Subtract(value):
            return AlterableConfig(name=name, config_operation=_SUBTRACT, value=value)
        case _:
            return AlterableConfig(name=name, config_operation=_SET, value=config_text(change))


async def list_config_resources(
    admin: Admin, types: Iterable[ResourceType] = (), *, timeout_ms: int | None = None
) -> list[ConfigResource]:
    """Returns the resources that have configs of their own, of all types or of these."""
    wanted = list(types)
    answer = await admin._router.anyone(
        ListConfigResourcesRequest(resource_types=[int(each) for each in wanted]),
        timeout_ms=timeout_ms,
        at_least=None if wanted == [ResourceType.CLIENT_METRICS] else _TYPES_SINCE,
    )
    check(answer.error_code, "the resources that have configs")
    return sorted(
        ConfigResource(known(ResourceType, each.resource_type), each.resource_name)
        for each in answer.config_resources
    )
