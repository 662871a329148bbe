"""BrokerRegistration: a broker joins the cluster, fenced at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole

_PREVIOUS_EPOCH_SINCE = 3


async def handle(
    role: ControllerRole, context: Context, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    try:
        check_cluster(role, context, Operation.CLUSTER_ACTION)
        now = role.clock.monotonic()
        epoch = await role.controller.ask(
            lambda controller: controller.decide_register_broker(
                request,
                now,
                is_own=context.is_internal,
                tells_clean_stops=context.version >= _PREVIOUS_EPOCH_SINCE,
            )
        )
    except ApiError as refusal:
        if refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            role.controller.probe(request.broker_id)  # the next attempt may succeed
        return BrokerRegistrationResponse(error_code=refusal.code)
    return BrokerRegistrationResponse(broker_epoch=epoch)
