"""ACLs: the operations that principals may perform on resources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.admin.results import check, known
from headwater.client.errors import ClientError, error_for
from headwater.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headwater.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headwater.protocol.messages.describe_acls import DescribeAclsRequest
from headwater.security.acls import AclPattern, AclPermission, AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.client.admin import Admin


__all__ = [
    "Acl",
    "AclFilter",
    "AclPattern",
    "AclPermission",
    "AclResource",
    "create_acls",
    "delete_acls",
    "describe_acls",
]


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule. The principal is `User:alice`, or `User:*` for everybody; host `*` is every host; a
    literal name `*` is every resource of the type."""

    resource: AclResource
    name: str
    principal: str
    operation: Operation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern: AclPattern = AclPattern.LITERAL


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for rules; what is left out matches anything."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: Operation = Operation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern: AclPattern = AclPattern.ANY


async def create_acls(
    admin: Admin, acls: Iterable[Acl], *, timeout_ms: int | None = None
) -> dict[Acl, ClientError | None]:
    """Adds rules. Succeeds if a rule already exists."""
    wanted = list(dict.fromkeys(acls))
    answer = await admin._router.controller(
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=each.resource,
                    resource_name=each.name,
                    resource_pattern_type=each.pattern,
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in wanted
            ]
        ),
        timeout_ms=timeout_ms,
    )
    return {
        acl: error_for(each.error_code, f"ACL for {acl.principal}", each.error_message)
        if each.error_code
        else None
        for acl, each in zip(wanted, answer.results, strict=True)
    }


async def describe_acls(
    admin: Admin, wanted: AclFilter | None = None, *, timeout_ms: int | None = None
) -> list[Acl]:
    """Returns the rules that match a filter, or all."""
    wanted = wanted or AclFilter()
    answer = await admin._router.anyone(
        DescribeAclsRequest(
            resource_type_filter=wanted.resource,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        ),
        timeout_ms=timeout_ms,
    )
    check(answer.error_code, "the ACLs", answer.error_message)
    return [
        Acl(
            resource=known(AclResource, resource.resource_type),
            name=resource.resource_name,
            principal=each.principal,
            operation=known(Operation, each.operation),
            permission=known(AclPermission, each.permission_type),
            host=each.host,
            pattern=known(AclPattern, resource.pattern_type),
        )
        for resource in answer.resources
        for each in resource.acls
    ]


async def delete_acls(
    admin: Admin, filters: Iterable[AclFilter], *, timeout_ms: int | None = None
) -> dict[AclFilter, list[Acl] | ClientError]:
    """Deletes the rules that match, and returns those of each filter."""
    wanted = list(dict.fromkeys(filters))
    answer = await admin._router.controller(
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.resource,
                    resource_name_filter=each.name,
                    pattern_type_filter=each.pattern,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in wanted
            ]
        ),
        timeout_ms=timeout_ms,
    )
    results: dict[AclFilter, list[Acl] | ClientError] = {}
    for each, result in zip(wanted, answer.filter_results, strict=True):
        # An error of one rule that matched is the result of its filter.
        failed = next((acl for acl in result.matching_acls if acl.error_code), result)
        results[each] = (
            error_for(failed.error_code, "deletion of ACLs", failed.error_message)
            if failed.error_code
            else [
                Acl(
                    resource=known(AclResource, acl.resource_type),
                    name=acl.resource_name,
                    principal=acl.principal,
                    operation=known(Operation, acl.operation),
                    permission=known(AclPermission, acl.permission_type),
                    host=acl.host,
                    pattern=known(AclPattern, acl.pattern_type),
                )
                for acl in result.matching_acls
            ]
        )
    return results
