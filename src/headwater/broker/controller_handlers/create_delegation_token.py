"""CreateDelegationToken: refused, as on every listener whose clients are not authenticated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole

_NEVER = -1


def handle(
    role: ControllerRole, context: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    return refuse(context, request, ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))


def refuse(
    context: Context, request: CreateDelegationTokenRequest, refusal: ApiError
) -> CreateDelegationTokenResponse:
    who = context.principal
    return CreateDelegationTokenResponse(
        error_code=refusal.code,
        principal_type=who.type,
        principal_name=who.name,
        token_requester_principal_type=who.type if context.version >= 3 else "",
        token_requester_principal_name=who.name if context.version >= 3 else "",
        issue_timestamp_ms=_NEVER,
        expiry_timestamp_ms=_NEVER,
        max_timestamp_ms=_NEVER,
    )
