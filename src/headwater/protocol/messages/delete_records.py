"""Moving the start of a log forward."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Int64, Message, message


@message(api=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Message):
    """Drop the records before these offsets."""

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32


class DeleteRecordsTopic(Message):
    """One of the `topics` of `DeleteRecordsRequest`."""

    name: str
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsPartition(Message):
    """One of the `partitions` of `DeleteRecordsTopic`."""

    partition_index: Int32
    offset: Int64


@message(api=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse(Message):
    """The new start of each log."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []


class DeleteRecordsTopicResult(Message):
    """One of the `topics` of `DeleteRecordsResponse`."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsPartitionResult(Message):
    """One of the `partitions` of `DeleteRecordsTopicResult`."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0
