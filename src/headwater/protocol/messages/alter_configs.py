"""AlterConfigs (key 33)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, message, sensitive


@message(api=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest(Message):
    """The message `AlterConfigsRequest`."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool


class AlterConfigsResource(Message):
    """A part of `AlterConfigsRequest`."""

    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig] = []


class AlterableConfig(Message):
    """A part of `AlterConfigsRequest`."""

    name: str
    value: Annotated[str | None, sensitive]


@message(api=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse(Message):
    """The message `AlterConfigsResponse`."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Message):
    """A part of `AlterConfigsResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
