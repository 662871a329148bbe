"""RenewDelegationToken: puts off when a token expires (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.tokens import NEVER, check_token_request
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        check_token_request(role, context)
        expires_ms = await role.controller.ask(
            lambda controller: controller.decide_renew_token(
                request, context.principal, now_ms=role.clock.wall_ms()
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)


def refuse(
    context: Context, request: RenewDelegationTokenRequest, refusal: ApiError
) -> RenewDelegationTokenResponse:
    is_unseen = refusal.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return RenewDelegationTokenResponse(
        error_code=refusal.code, expiry_timestamp_ms=NEVER if is_unseen else 0
    )
