"""CreateDelegationToken: makes a token for the client, or for another owner (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.broker.tokens import NEVER, check_token_request, check_tokens_enabled
from headwater.controller.tokens import owner_of
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.security.tokens import token_hmac

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    try:
        check_token_request(role, context)
        owner = owner_of(request, context.principal)
        if str(owner) != str(context.principal):
            check(role, context, Operation.CREATE_TOKENS, AclResource.USER, str(owner))
        key = check_tokens_enabled(role)
        token = await role.controller.ask(
            lambda controller: controller.decide_create_token(
                request, context.principal, now_ms=role.clock.wall_ms()
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    response = _response(context, request)
    response.issue_timestamp_ms = token.issue_timestamp
    response.expiry_timestamp_ms = token.expiration_timestamp
    response.max_timestamp_ms = token.max_timestamp
    response.token_id = token.token_id
    response.hmac = token_hmac(token.token_id, key)
    return response


def refuse(
    context: Context, request: CreateDelegationTokenRequest, refusal: ApiError
) -> CreateDelegationTokenResponse:
    response = _response(context, request)
    response.error_code = refusal.code
    # Kafka has no times where it looks at the client, and zeros where it looks at the request.
    if refusal.code in (
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ):
        response.issue_timestamp_ms = NEVER
        response.expiry_timestamp_ms = NEVER
        response.max_timestamp_ms = NEVER
    return response


def _response(
    context: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = context.principal
    owner = owner_of(request, requester)
    return CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if context.version >= 3 else "",
        token_requester_principal_name=requester.name if context.version >= 3 else "",
    )
