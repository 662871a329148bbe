"""DeleteRecords (key 21)."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Int64, Message, message


@message(api=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Message):
    """The message `DeleteRecordsRequest`."""

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32


class DeleteRecordsTopic(Message):
    """A part of `DeleteRecordsRequest`."""

    name: str
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsPartition(Message):
    """A part of `DeleteRecordsRequest`."""

    partition_index: Int32
    offset: Int64


@message(api=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse(Message):
    """The message `DeleteRecordsResponse`."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []


class DeleteRecordsTopicResult(Message):
    """A part of `DeleteRecordsResponse`."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsPartitionResult(Message):
    """A part of `DeleteRecordsResponse`."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0
