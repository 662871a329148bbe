"""ListConfigResources (key 74)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, ignorable, message, since


@message(api=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Message):
    """The message `ListConfigResourcesRequest`."""

    resource_types: Annotated[list[Int8], since(1)] = []


@message(api=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse(Message):
    """The message `ListConfigResourcesResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


class ConfigResource(Message):
    """A part of `ListConfigResourcesResponse`."""

    resource_name: str = ""
    resource_type: Annotated[Int8, since(1), ignorable] = 16
