"""Alterations of settings of topics, brokers, the cluster, groups and metrics subscriptions.

A resource is altered completely or not at all. `config/` defines what is valid; this module decides
the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headwater.config.alter import Alteration, AlterOperation, altered
from headwater.config.catalog import (
    broker_definitions,
    group_definitions,
    topic_definitions,
)
from headwater.config.definition import ConfigDef
from headwater.config.node import node_config
from headwater.controller.decision import Decision
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import CLUSTER_DEFAULT, Resource, ResourceType, topic_names
from headwater.protocol import Message
from headwater.protocol.records.metadata_topics import ClearElrRecord, ConfigRecord

MIN_ISR = "min.insync.replicas"

# The result of each resource: None is success.
Outcome = dict[Resource, ApiError | None]


def alter_configs(
    state: ControllerState,
    wanted: Sequence[tuple[Resource, Sequence[tuple[str, str | None]]]],
    *,
    validate_only: bool,
) -> Decision[Outcome]:
    """Replaces all settings (AlterConfigs): those that are not named are reset to their default."""
    changes = []
    for resource, configs in wanted:
        named = {name for name, _ in configs}
        # Brokers refuse null before they forward it; sent to a controller it resets the setting.
        alterations = [
            Alteration(name, AlterOperation.DELETE if value is None else AlterOperation.SET, value)
            for name, value in configs
        ]
        implied = [
            Alteration(name, AlterOperation.DELETE, None)
            for name in state.image.config(resource)
            if name not in named
        ]
        changes.append((resource, alterations + implied))
    return incremental_alter_configs(state, changes, validate_only=validate_only)


def incremental_alter_configs(
    state: ControllerState,
    changes: Sequence[tuple[Resource, Sequence[Alteration]]],
    *,
    validate_only: bool,
) -> Decision[Outcome]:
    outcome: Outcome = {}
    records: list[Message] = []
    counts = Counter(resource for resource, _ in changes)
    for resource, alterations in changes:
        try:
            if counts[resource] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "a resource may be named only once in a request"
                )
            records += alter_resource(state, resource, alterations)
            outcome[resource] = None
        except ApiError as refusal:
            outcome[resource] = refusal
    return Decision(() if validate_only else records, outcome)


def alter_resource(
    state: ControllerState,
    resource: Resource,
    alterations: Sequence[Alteration],
    *,
    is_new: bool = False,
) -> list[Message]:
    """Returns the records that change one resource. `is_new`: it is created in the same batch."""
    repeated = [n for n, count in Counter(a.name for a in alterations).items() if count > 1]
    if repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{repeated[0]} is named more than once")
    current = state.image.config(resource)
    after = altered(current, alterations, _definitions(resource))
    _validate(state, resource, after, current, is_new=is_new)
    _check_elr_rules(state, resource, alterations)
    if state.policies.on_alteration is not None and alterations:
        named = {name: after.get(name) for name, _, _ in alterations}
        state.policies.on_alteration(resource, named)
    records: list[Message] = []
    for name, _, _ in alterations:
        value = after.get(name)
        # Brokers reload on each record (key stores change under an unchanged name), so theirs is
        # written even if the value is the same (KAFKA-14136).
        if value != current.get(name) or resource.type == ResourceType.BROKER:
            records.append(
                ConfigRecord(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    name=name,
                    value=value,
                )
            )
            records += _clear_elr_records(state, resource, name, is_new=is_new)
    return records


def _check_elr_rules(
    state: ControllerState, resource: Resource, alterations: Sequence[Alteration]
) -> None:
    """Enforces that with eligible leader replicas (KIP-966) min.insync.replicas has a value for the
    cluster and none for single brokers."""
    if resource.type != ResourceType.BROKER or not state.elr_enabled:
        return
    for name, operation, _ in alterations:
        if name != MIN_ISR:
            continue
        if resource != CLUSTER_DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_ISR} cannot be set for one broker with eligible leader replicas",
            )
        if operation is AlterOperation.DELETE:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_ISR} of the cluster cannot be removed with eligible leader replicas",
            )


def _clear_elr_records(
    state: ControllerState, resource: Resource, name: str, *, is_new: bool
) -> list[Message]:
    """Returns records that clear eligible leaders: they were determined with the old minimum."""
    if name != MIN_ISR or not state.elr_enabled or is_new:
        return []
    if resource == CLUSTER_DEFAULT:
        return [ClearElrRecord(topic_name="")]
    if resource.type == ResourceType.TOPIC:
        return [ClearElrRecord(topic_name=resource.name)]
    return []


def _definitions(resource: Resource) -> Mapping[str, ConfigDef]:
    match resource.type:
        case ResourceType.TOPIC:
            return topic_definitions()
        case ResourceType.BROKER:
            return broker_definitions()
        case ResourceType.GROUP:
            return group_definitions()
        case _:
            # Kafka's controller does not know which settings of a metrics subscription are lists,
            # so appending is not possible.
            return {}


def _validate(
    state: ControllerState,
    resource: Resource,
    after: Mapping[str, str],
    current: Mapping[str, str],
    *,
    is_new: bool,
) -> None:
    match resource.type:
        case ResourceType.TOPIC:
            _validate_topic(state, resource.name, after, current, is_new=is_new)
        case ResourceType.BROKER:
            _validate_broker(state, resource, after)
        case ResourceType.GROUP:
            from headwater.config.validate import validate_group_configs

            if not resource.name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a group must have a name")
            validate_group_configs(after, state.layers)
        case ResourceType.CLIENT_METRICS:
            from headwater.config.validate import validate_client_metrics

            if not resource.name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a subscription must have a name")
            validate_client_metrics(after)
        case ResourceType.BROKER_LOGGER:
            raise ApiError(ErrorCode.INVALID_REQUEST, "levels of loggers are not in the metadata")
        case _:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"resources of type {resource.type} are not known"
            )


def _validate_topic(
    state: ControllerState,
    name: str,
    after: Mapping[str, str],
    current: Mapping[str, str],
    *,
    is_new: bool,
) -> None:
    from headwater.config.validate import validate_topic_configs

    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic must have a name")
    topic_names.check(name)
    if after:
        validate_topic_configs(
            after,
            state.topic_defaults,
            existing=current,
            remote_storage_enabled=bool(state.node.value("remote.log.storage.system.enable")),
        )
    if not is_new and name not in state.image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")


def _validate_broker(state: ControllerState, resource: Resource, after: Mapping[str, str]) -> None:
    """Validates what the controller can. The broker's handler has validated the rest before."""
    from headwater.config.validate_broker import validate_broker_configs

    per_broker = bool(resource.name)
    if per_broker:
        if not resource.name.isdigit():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {resource.name!r}, expected its id")
        if not state.is_known_node(int(resource.name)):
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {resource.name} is not registered"
            )
    layers = state.layers
    current = node_config(
        layers.static,
        dynamic_broker=layers.dynamic_broker,
        dynamic_default=layers.dynamic_default,
    )
    is_own = not per_broker or int(resource.name) == state.node.node_id
    validate_broker_configs(after, current, per_broker=per_broker, is_own=is_own)
