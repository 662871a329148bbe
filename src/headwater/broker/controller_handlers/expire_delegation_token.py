"""ExpireDelegationToken: refused, as on every listener whose clients are not authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole

_NEVER = -1


def handle(
    role: ControllerRole, context: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return refuse(context, request, ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))


def refuse(
    context: Context, request: ExpireDelegationTokenRequest, refusal: ApiError
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=refusal.code, expiry_timestamp_ms=_NEVER)
