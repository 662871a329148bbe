"""The first records of a controller that takes over, and the first of a cluster at all."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.controller.decision import Decision
from headwater.controller.features import elr_safety_records
from headwater.controller.state import ControllerState
from headwater.metadata.features import ELIGIBLE_LEADER_REPLICAS, LEVEL_TRANSACTIONS
from headwater.metadata.records import RecordType
from headwater.protocol import Message
from headwater.protocol.records.metadata_nodes import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def activate(
    state: ControllerState, bootstrap: Sequence[Message], *, log_is_empty: bool
) -> Decision[None]:
    """`bootstrap` is what the directory was formatted with. A transaction that the controller
    before us left open is aborted; if that was the cluster's first, it is begun again."""
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
