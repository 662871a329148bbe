"""AllocateProducerIds: a broker gets a block of ids from the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    try:
        check_cluster(role, context, Operation.CLUSTER_ACTION)
        block = await role.controller.ask(
            lambda controller: controller.decide_allocate_producer_ids(
                broker_id=request.broker_id, broker_epoch=request.broker_epoch
            )
        )
    except ApiError as refusal:
        return AllocateProducerIdsResponse(error_code=refusal.code)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.size)
