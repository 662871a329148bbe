"""Describing access control entries."""

from __future__ import annotations

from headwater.protocol.schema import Int8, Int16, Int32, Message, message


@message(api=29, versions=(1, 3), flexible=2)
class DescribeAclsRequest(Message):
    """Asks for the entries that match a filter."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@message(api=29, versions=(1, 3), flexible=2)
class DescribeAclsResponse(Message):
    """The entries, by resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


class DescribeAclsResource(Message):
    """One of the `resources` of `DescribeAclsResponse`."""

    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class AclDescription(Message):
    """One of the `acls` of `DescribeAclsResource`."""

    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
