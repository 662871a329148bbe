"""ControllerRegistration: where a controller listens, and what it supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    try:
        check_cluster(role, context, Operation.CLUSTER_ACTION)
        await role.controller.ask(lambda controller: controller.decide_register_controller(request))
    except ApiError as refusal:
        return ControllerRegistrationResponse(
            error_code=refusal.code, error_message=refusal.message
        )
    return ControllerRegistrationResponse(error_message=None)
