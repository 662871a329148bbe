"""DescribeUserScramCredentials: the SCRAM mechanisms of users, without secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole


def handle(
    node: Broker | ControllerRole, context: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    try:
        check_cluster(node, context, Operation.DESCRIBE)
    except ApiError as refusal:
        return _refused(request, refusal)
    credentials: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), record in node.image.scram.items():
        credentials.setdefault(user, []).append(
            CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        )
    # No users in the request means all of them.
    asked = Counter(user.name for user in request.users or ()) or dict.fromkeys(credentials, 1)
    return DescribeUserScramCredentialsResponse(
        results=[_result(user, times, credentials.get(user)) for user, times in asked.items()]
    )


def _refused(
    request: DescribeUserScramCredentialsRequest, refusal: ApiError
) -> DescribeUserScramCredentialsResponse:
    code, message = refusal.code, refusal.message
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=message,
        results=[
            DescribeUserScramCredentialsResult(
                user=user.name, error_code=code, error_message=message
            )
            for user in request.users or ()
        ],
    )


def _result(
    user: str, times: int, credentials: list[CredentialInfo] | None
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"user {user!r} is named {times} times in one request",
        )
    if credentials is None:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"user {user!r} has no SCRAM credentials",
        )
    return DescribeUserScramCredentialsResult(
        user=user, error_message=None, credential_infos=credentials
    )
