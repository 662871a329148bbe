"""DescribeDelegationToken: the tokens that the client owns, may renew, or may describe (KIP-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import is_allowed
from headwater.broker.context import Context
from headwater.broker.tokens import check_token_request, check_tokens_enabled
from headwater.controller.tokens import is_owner_or_renewer
from headwater.errors import ApiError
from headwater.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.security.tokens import parse_principal, token_hmac

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole
    from headwater.protocol.records.metadata_security import DelegationTokenRecord


def handle(
    node: Broker | ControllerRole, context: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    try:
        check_token_request(node, context)
        key = check_tokens_enabled(node)
    except ApiError as refusal:
        return DescribeDelegationTokenResponse(error_code=refusal.code)
    # Null asks for the tokens of all owners; an empty list for none.
    asked = (
        None
        if request.owners is None
        else [f"{each.principal_type}:{each.principal_name}" for each in request.owners]
    )
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(context, token, key)
            for token in node.image.tokens.values()
            if (asked is None or any(is_owner_or_renewer(token, owner) for owner in asked))
            and _may_see(node, context, token)
        ]
    )


def _may_see(node: Broker | ControllerRole, context: Context, token: DelegationTokenRecord) -> bool:
    """Returns whether a token is the client's, or is one of those that it may describe."""
    if node.authorizer is None or is_owner_or_renewer(token, str(context.principal)):
        return True
    kind, user = AclResource.DELEGATION_TOKEN, AclResource.USER
    return is_allowed(
        node, context, Operation.DESCRIBE, kind, token.token_id, quiet=True
    ) or is_allowed(node, context, Operation.DESCRIBE_TOKENS, user, token.owner, quiet=True)


def _described(
    context: Context, token: DelegationTokenRecord, key: str
) -> DescribedDelegationToken:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    return DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if context.version >= 3 else "",
        token_requester_principal_name=requester.name if context.version >= 3 else "",
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(token.token_id, key),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in map(parse_principal, token.renewers)
        ],
    )
