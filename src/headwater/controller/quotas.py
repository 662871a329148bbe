"""Quotas of users, client ids and IP addresses (KIP-546, KIP-612).

The entities of a request are independent: a refused one does not affect the others. A value that is
already set, and the removal of one that is not, write no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.controller.decision import Decision, check_bound
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.protocol import Message
from headwater.protocol.records.metadata_security import ClientQuotaRecord, EntityData
from headwater.quotas.entities import Entity, check_value, keys_of


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Requested changes of one entity: a new value for each key, or None to remove it."""

    entity: Entity
    values: tuple[tuple[str, float | None], ...]


Outcomes = dict[Entity, ApiError | None]


def alter_client_quotas(
    state: ControllerState, changes: Iterable[QuotaChange], *, validate_only: bool
) -> Decision[Outcomes]:
    """Sets and removes quotas. If a request names an entity twice, the first entry is carried out
    and the outcome is a refusal, as in Kafka."""
    outcomes: Outcomes = {}
    records: list[Message] = []
    for change in changes:
        try:
            if change.entity in outcomes:
                raise _invalid("the entity is named more than once in this request")
            made = _records(state, change)
        except ApiError as refusal:
            outcomes[change.entity] = refusal
            continue
        outcomes[change.entity] = None
        records += made
        check_bound(len(records))
    return Decision(() if validate_only else records, outcomes)


def _records(state: ControllerState, change: QuotaChange) -> Sequence[ClientQuotaRecord]:
    keys = keys_of(change.entity)
    values = dict(change.values)
    if len(values) < len(change.values):
        raise _invalid("a quota is named more than once for this entity")
    current = state.image.client_quotas.get(change.entity, {})
    records: list[ClientQuotaRecord] = []
    for key, value in values.items():
        if value is None:
            if key not in current:
                continue
        else:
            if key not in keys:
                raise _invalid(f"{key!r} is not a quota of this entity, expected {', '.join(keys)}")
            check_value(key, value, keys[key])
            if current.get(key) == value:
                continue
        records.append(
            ClientQuotaRecord(
                entity=[
                    EntityData(entity_type=kind, entity_name=name) for kind, name in change.entity
                ],
                key=key,
                value=0.0 if value is None else value,
                remove=value is None,
            )
        )
    return records


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
