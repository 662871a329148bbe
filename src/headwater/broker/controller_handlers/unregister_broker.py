"""UnregisterBroker: the cluster forgets a broker that will not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        check_cluster(role, context, Operation.ALTER)
        await role.controller.ask(
            lambda controller: controller.decide_unregister_broker(request.broker_id)
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return UnregisterBrokerResponse()


def refuse(
    context: Context, request: UnregisterBrokerRequest, refusal: ApiError
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=refusal.code, error_message=refusal.message)
