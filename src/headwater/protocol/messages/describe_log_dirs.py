"""Describing the log directories of a broker."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, ignorable, message, since


@message(api=35, versions=(1, 5), flexible=2)
class DescribeLogDirsRequest(Message):
    """Describe these partitions, or all."""

    topics: list[DescribableLogDirTopic] | None = []


class DescribableLogDirTopic(Message):
    """One of the `topics` of `DescribeLogDirsRequest`."""

    topic: str
    partitions: list[Int32] = []


@message(api=35, versions=(1, 5), flexible=2)
class DescribeLogDirsResponse(Message):
    """The directories, and what lies in them."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), ignorable] = 0
    results: list[DescribeLogDirsResult] = []


class DescribeLogDirsResult(Message):
    """One of the `results` of `DescribeLogDirsResponse`."""

    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, since(4), ignorable] = -1
    usable_bytes: Annotated[Int64, since(4), ignorable] = -1
    is_cordoned: Annotated[bool, since(5), ignorable] = False


class DescribeLogDirsTopic(Message):
    """One of the `topics` of `DescribeLogDirsResult`."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsPartition(Message):
    """One of the `partitions` of `DescribeLogDirsTopic`."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False
