"""Describing where share groups start."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest(Message):
    """Asks for the start offsets of share groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsRequestGroup(Message):
    """One of the `groups` of `DescribeShareGroupOffsetsRequest`."""

    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


class DescribeShareGroupOffsetsRequestTopic(Message):
    """One of the `topics` of `DescribeShareGroupOffsetsRequestGroup`."""

    topic_name: str
    partitions: list[Int32] = []


@message(api=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse(Message):
    """The start of each partition, and the lag."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


class DescribeShareGroupOffsetsResponseGroup(Message):
    """One of the `groups` of `DescribeShareGroupOffsetsResponse`."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Message):
    """One of the `topics` of `DescribeShareGroupOffsetsResponseGroup`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_ID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponsePartition(Message):
    """One of the `partitions` of `DescribeShareGroupOffsetsResponseTopic`."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, since(1), ignorable] = -1
    error_code: Int16 = 0
    error_message: str | None = None
