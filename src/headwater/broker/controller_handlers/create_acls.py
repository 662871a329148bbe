"""CreateAcls: access control rules, each created or refused for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.acl_requests import check_elements
from headwater.broker.authorization import check_cluster, check_keeps_rules
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headwater.security.acls import Rule
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: CreateAclsRequest
) -> CreateAclsResponse:
    check_elements(context, request)
    rules = [
        Rule(
            asked.resource_type,
            asked.resource_name,
            asked.resource_pattern_type,
            asked.principal,
            asked.host,
            asked.operation,
            asked.permission_type,
        )
        for asked in request.creations
    ]
    try:
        check_cluster(role, context, Operation.ALTER)
        check_keeps_rules(role)
        refusals = await role.controller.ask(
            lambda controller: controller.decide_create_acls(rules)
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return CreateAclsResponse(results=[_result(refusal) for refusal in refusals])


def refuse(context: Context, request: CreateAclsRequest, refusal: ApiError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(refusal) for _ in request.creations])


def _result(refusal: ApiError | None) -> AclCreationResult:
    if refusal is None:
        return AclCreationResult()
    return AclCreationResult(error_code=refusal.code, error_message=refusal.message)
