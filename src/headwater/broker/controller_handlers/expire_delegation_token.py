"""ExpireDelegationToken: ends a token, now or later (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.tokens import NEVER, check_token_request
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        check_token_request(role, context)
        expires_ms = await role.controller.ask(
            lambda controller: controller.decide_expire_token(
                request, context.principal, now_ms=role.clock.wall_ms()
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)


def refuse(
    context: Context, request: ExpireDelegationTokenRequest, refusal: ApiError
) -> ExpireDelegationTokenResponse:
    is_unseen = refusal.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ExpireDelegationTokenResponse(
        error_code=refusal.code, expiry_timestamp_ms=NEVER if is_unseen else 0
    )
