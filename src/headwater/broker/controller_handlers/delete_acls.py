"""DeleteAcls: refused with SECURITY_DISABLED, as by every controller without an authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def handle(
    role: ControllerRole, context: Context, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    disabled = ApiError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
    return refuse(context, request, disabled)


def refuse(context: Context, request: DeleteAclsRequest, refusal: ApiError) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=refusal.code, error_message=refusal.message)
            for _ in request.filters
        ]
    )
