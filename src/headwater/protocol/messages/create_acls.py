"""Creating access control entries."""

from __future__ import annotations

from headwater.protocol.schema import Int8, Int16, Int32, Message, message


@message(api=30, versions=(1, 3), flexible=2)
class CreateAclsRequest(Message):
    """Create these entries."""

    creations: list[AclCreation] = []


class AclCreation(Message):
    """One of the `creations` of `CreateAclsRequest`."""

    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = 3
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(api=30, versions=(1, 3), flexible=2)
class CreateAclsResponse(Message):
    """The outcome for each entry."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


class AclCreationResult(Message):
    """One of the `results` of `CreateAclsResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
