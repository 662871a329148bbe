"""Envelope: a broker hands on a request of its client, whose response goes back in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.broker.envelope import enclose_response, has_error, take_out
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: EnvelopeRequest
) -> EnvelopeResponse:
    try:
        check_cluster(role, context, Operation.CLUSTER_ACTION)
        header, inner, origin = take_out(request)
        if header.api.key not in role.served:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{header.api.name} is not served here")
    except ApiError as refusal:
        if refusal.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            role.log.bounded.warn(f"an envelope from {context.client_host} was refused: {refusal}")
        return EnvelopeResponse(error_code=refusal.code)
    forwarded = Context(
        context.connection, header.version, header.client_id, origin, header.api.key
    )
    response = await role.answer(forwarded, inner)
    if has_error(response, ErrorCode.NOT_CONTROLLER):
        # For the broker, which asks the next controller; its client should not notice.
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=enclose_response(header, response))
