"""Feature levels: those a cluster begins with, and how they change (UpdateFeatures).

The updates of a request succeed or fail together. metadata.version can only be lowered as long as
no record in the log would lose a field.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater.controller.decision import Decision
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    FEATURES,
    KRAFT_VERSION,
    LEVEL_CONTROLLER_REGISTRATION,
    LEVEL_TRANSACTIONS,
    METADATA_VERSION,
    LevelRange,
    downgrade_loses_metadata,
    unmet_need,
)
from headwater.metadata.model import CLUSTER_DEFAULT
from headwater.metadata.records import RecordType
from headwater.protocol import Message
from headwater.protocol.records.metadata_nodes import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from headwater.protocol.records.metadata_topics import ConfigRecord

_MIN_ISR = "min.insync.replicas"


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def update_features(
    state: ControllerState,
    updates: list[FeatureUpdate],
    *,
    validate_only: bool,
    kraft_version: int = 0,
) -> Decision[None]:
    """Updates features; raises one ApiError for the whole request. `kraft_version` is the level
    that the quorum is at. It is only checked here: the quorum itself raises it."""
    proposed = dict(state.image.features)
    proposed |= {update.name: update.level for update in updates}
    records: list[Message] = []
    for update in updates:
        _check(state, update, proposed, kraft_version)
        if update.name == KRAFT_VERSION:
            continue
        records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        if update.name == ELIGIBLE_LEADER_REPLICAS and update.level > 0 and not state.elr_enabled:
            records += elr_safety_records(state)
    return Decision(() if validate_only else records, None)


def elr_safety_records(state: ControllerState) -> list[Message]:
    """Returns records that set min.insync.replicas for the cluster and remove it from brokers: with
    eligible leader replicas, all brokers must use the same value."""
    records: list[Message] = []
    if _MIN_ISR not in state.image.config(CLUSTER_DEFAULT):
        records.append(_min_isr("", str(state.node.min_insync_replicas)))
    records += [
        _min_isr(resource.name, None)
        for resource, configs in state.image.configs.items()
        if resource.type == CLUSTER_DEFAULT.type and resource.name and _MIN_ISR in configs
    ]
    return records


def _min_isr(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=CLUSTER_DEFAULT.type, resource_name=broker, name=_MIN_ISR, value=value
    )


def _check(
    state: ControllerState, update: FeatureUpdate, proposed: dict[str, int], kraft_version: int
) -> None:
    def refused(why: str) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.name or 'a feature without a name'} cannot be set to {update.level}: {why}",
        )

    if update.upgrade_type not in UpgradeType.__members__.values():
        raise refused(f"upgrade type {update.upgrade_type}, expected 1, 2 or 3")
    if update.level < 0:
        raise refused("expected a level of at least 0")
    reason = _why_unsupported(state, update)
    if reason:
        raise refused(reason)
    is_of_quorum = update.name == KRAFT_VERSION
    current = kraft_version if is_of_quorum else state.image.features.get(update.name, 0)
    is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
    if update.level < current and is_upgrade:
        raise refused(f"it is at {current}, and the request does not allow a downgrade")
    if update.level > current and not is_upgrade:
        raise refused(f"it is at {current}, and the request asks for a downgrade")
    if is_of_quorum and update.level < current:
        raise refused(
            f"it is at {current}, and a quorum with dynamic voters does not become static again"
        )
    if update.name == METADATA_VERSION:
        if downgrade_loses_metadata(current=current, target=update.level):
            raise refused(f"a downgrade from {current} could lose metadata")
        return
    need = unmet_need(update.name, update.level, proposed)
    if need:
        raise refused(need)


def _why_unsupported(state: ControllerState, update: FeatureUpdate) -> str | None:
    """Returns which node does not support this level, or None."""
    feature = FEATURES.get(update.name)
    if feature is None:
        return "unknown feature"
    nobody = LevelRange(0, 0)
    supporters = [("this controller", feature.supported)]
    supporters += [
        (f"broker {broker.id}", broker.features.get(update.name, nobody))
        for broker in state.image.brokers.values()
    ]
    supporters += [
        (f"controller {controller.id}", controller.features.get(update.name, nobody))
        for controller in state.image.controllers.values()
        if controller.id != state.node.node_id  # this process, maybe not yet as it is now
    ]
    for who, levels in supporters:
        if update.level not in levels:
            return f"{who} supports {levels.low} to {levels.high}"
    if state.image.metadata_version >= LEVEL_CONTROLLER_REGISTRATION:
        for voter in state.node.controller_quorum_voters:
            known = state.image.controllers
            if voter.node_id not in known and voter.node_id != state.node.node_id:
                return (
                    f"controller {voter.node_id} has not registered and may not support it; start "
                    "it first"
                )
    return None


# The first records of a new controller, and of a new cluster


def activate(
    state: ControllerState, bootstrap: Sequence[Message], *, log_is_empty: bool
) -> Decision[None]:
    """Starts a controller. A transaction that its predecessor left open is aborted; if that was the
    bootstrap of the cluster, it is written again. `bootstrap` has the records of the formatted
    directory."""
    records: list[Message] = []
    if state.replay.in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if log_is_empty:
        records += _first_records(state, bootstrap)
    return Decision(records, None)


def _first_records(state: ControllerState, bootstrap: Sequence[Message]) -> list[Message]:
    levels = {
        record.name: record.feature_level
        for record in bootstrap
        if isinstance(record, FeatureLevelRecord)
    }
    body = list(bootstrap)
    if levels.get(ELIGIBLE_LEADER_REPLICAS) and not _sets_min_isr(bootstrap):
        body += elr_safety_records(state)
    if max(levels.values(), default=0) < LEVEL_TRANSACTIONS:
        return body
    return [BeginTransactionRecord(name="Bootstrap records"), *body, EndTransactionRecord()]


def _sets_min_isr(records: Sequence[Message]) -> bool:
    return any(
        record.API == RecordType.CONFIG and getattr(record, "name", "") == "min.insync.replicas"
        for record in records
    )
