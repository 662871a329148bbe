"""Replacing all configs of a resource. Old; see IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, message, sensitive


@message(api=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Message):
    """Replace the configs of these resources."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool


class AlterConfigsResource(Message):
    """One of the `resources` of `AlterConfigsRequest`."""

    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig] = []


class AlterableConfig(Message):
    """One of the `configs` of `AlterConfigsResource`."""

    name: str
    value: Annotated[str | None, sensitive]


@message(api=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse(Message):
    """The outcome for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Message):
    """One of the `responses` of `AlterConfigsResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
