"""Changing single configs of a resource."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, message, sensitive


@message(api=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest(Message):
    """Set, delete, append to or subtract from these configs."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool


class AlterConfigsResource(Message):
    """One of the `resources` of `IncrementalAlterConfigsRequest`."""

    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig] = []


class AlterableConfig(Message):
    """One of the `configs` of `AlterConfigsResource`."""

    name: str
    config_operation: Int8
    value: Annotated[str | None, sensitive]


@message(api=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse(Message):
    """The outcome for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Message):
    """One of the `responses` of `IncrementalAlterConfigsResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
