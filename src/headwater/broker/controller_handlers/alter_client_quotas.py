"""AlterClientQuotas: sets and removes quotas, for each entity by itself (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from headwater.quotas.entities import Entity, entity_of
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole
    from headwater.controller.quotas import QuotaChange


async def handle(
    role: ControllerRole, context: Context, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    try:
        check_cluster(role, context, Operation.ALTER_CONFIGS)
        changes = [_change(entry) for entry in request.entries]
        outcomes = await role.controller.ask(
            lambda controller: controller.decide_alter_client_quotas(
                changes, validate_only=request.validate_only
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return AlterClientQuotasResponse(
        entries=[_result(entity, refusal) for entity, refusal in outcomes.items()]
    )


def refuse(
    context: Context, request: AlterClientQuotasRequest, refusal: ApiError
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[_result(_entity(entry), refusal) for entry in request.entries]
    )


def _entity(entry: AlterClientQuotasRequestEntryData) -> Entity:
    return entity_of((part.entity_type, part.entity_name) for part in entry.entity)


def _change(entry: AlterClientQuotasRequestEntryData) -> QuotaChange:
    from headwater.controller.quotas import QuotaChange

    values = tuple((op.key, None if op.remove else op.value) for op in entry.ops)
    return QuotaChange(_entity(entry), values)


def _result(entity: Entity, refusal: ApiError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=refusal.code if refusal else 0,
        error_message=refusal.message if refusal else None,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity
        ],
    )
