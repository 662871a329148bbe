"""DescribeAcls: the access control rules that match a filter, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster, check_keeps_rules
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.net.connection import CloseConnection
from headwater.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from headwater.security.acls import Rule, RuleFilter
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole

_UNKNOWN = 0  # other numbers that nobody knows just match nothing


def handle(
    node: Broker | ControllerRole, context: Context, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    wanted = RuleFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if _UNKNOWN in (wanted.resource, wanted.pattern, wanted.operation, wanted.permission):
        # Kafka takes such a filter for a request that cannot be read.
        raise CloseConnection("DescribeAcls with an UNKNOWN element in its filter")
    try:
        check_cluster(node, context, Operation.DESCRIBE)
        check_keeps_rules(node)
    except ApiError as refusal:
        return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message)
    return DescribeAclsResponse(error_message=None, resources=_resources(node, wanted))


def _resources(node: Broker | ControllerRole, wanted: RuleFilter) -> list[DescribeAclsResource]:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for rule in map(Rule.from_record, node.image.acls.values()):
        if not wanted.matches(rule):
            continue
        key = rule.resource, rule.name, rule.pattern
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=rule.resource,
                resource_name=rule.name,
                pattern_type=rule.pattern,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
    return list(resources.values())
