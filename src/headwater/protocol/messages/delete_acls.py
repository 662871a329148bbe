"""Deleting access control entries."""

from __future__ import annotations

from headwater.protocol.schema import Int8, Int16, Int32, Message, message


@message(api=31, versions=(1, 3), flexible=2)
class DeleteAclsRequest(Message):
    """Delete what matches these filters."""

    filters: list[DeleteAclsFilter] = []


class DeleteAclsFilter(Message):
    """One of the `filters` of `DeleteAclsRequest`."""

    resource_type_filter: Int8
    resource_name_filter: str | None
    pattern_type_filter: Int8 = 3
    principal_filter: str | None
    host_filter: str | None
    operation: Int8
    permission_type: Int8


@message(api=31, versions=(1, 3), flexible=2)
class DeleteAclsResponse(Message):
    """The entries that were deleted, by filter."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


class DeleteAclsFilterResult(Message):
    """One of the `filter_results` of `DeleteAclsResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsMatchingAcl(Message):
    """One of the `matching_acls` of `DeleteAclsFilterResult`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
