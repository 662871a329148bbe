"""Listing what has configs."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, ignorable, message, since


@message(api=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest(Message):
    """List the resources of these types."""

    resource_types: Annotated[list[Int8], since(1)] = []


@message(api=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse(Message):
    """The resources."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


class ConfigResource(Message):
    """One of the `config_resources` of `ListConfigResourcesResponse`."""

    resource_name: str = ""
    resource_type: Annotated[Int8, since(1), ignorable] = 16
