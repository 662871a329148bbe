"""DeleteAcls: the access control rules that match filters are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.acl_requests import check_elements
from headwater.broker.authorization import check_cluster, check_keeps_rules
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headwater.security.acls import Rule, RuleFilter
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    check_elements(context, request)
    filters = [_filter(asked) for asked in request.filters]
    try:
        check_cluster(role, context, Operation.ALTER)
        check_keeps_rules(role)
        results = await role.controller.ask(
            lambda controller: controller.decide_delete_acls(filters)
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return DeleteAclsResponse(filter_results=[_result(result) for result in results])


def refuse(context: Context, request: DeleteAclsRequest, refusal: ApiError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_result(refusal) for _ in request.filters])


def _filter(asked: DeleteAclsFilter) -> RuleFilter:
    return RuleFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _result(result: list[Rule] | ApiError) -> DeleteAclsFilterResult:
    if isinstance(result, ApiError):
        return DeleteAclsFilterResult(error_code=result.code, error_message=result.message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=rule.resource,
                resource_name=rule.name,
                pattern_type=rule.pattern,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in result
        ],
    )
