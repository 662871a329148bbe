"""Describing configs."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    ignorable,
    message,
    sensitive,
    since,
)


@message(api=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest(Message):
    """Describe the configs of these resources."""

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: Annotated[bool, since(3)] = False


class DescribeConfigsResource(Message):
    """One of the `resources` of `DescribeConfigsRequest`."""

    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None = []


@message(api=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse(Message):
    """The configs with their sources."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


class DescribeConfigsResult(Message):
    """One of the `results` of `DescribeConfigsResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResourceResult(Message):
    """One of the `configs` of `DescribeConfigsResult`."""

    name: str = ""
    value: Annotated[str | None, sensitive] = ""
    read_only: bool = False
    config_source: Annotated[Int8, ignorable] = -1
    is_sensitive: bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], ignorable] = []
    config_type: Annotated[Int8, since(3), ignorable] = 0
    documentation: Annotated[str | None, since(3), ignorable] = ""


class DescribeConfigsSynonym(Message):
    """One of the `synonyms` of `DescribeConfigsResourceResult`."""

    name: str = ""
    value: Annotated[str | None, sensitive] = ""
    source: Int8 = 0
