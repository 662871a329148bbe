"""ReadShareGroupStateSummary (key 87)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryRequest(Message):
    """The message `ReadShareGroupStateSummaryRequest`."""

    group_id: str
    topics: list[ReadStateSummaryData] = []


class ReadStateSummaryData(Message):
    """A part of `ReadShareGroupStateSummaryRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """A part of `ReadShareGroupStateSummaryRequest`."""

    partition: Int32
    leader_epoch: Int32


@message(api=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse(Message):
    """The message `ReadShareGroupStateSummaryResponse`."""

    results: list[ReadStateSummaryResult] = []


class ReadStateSummaryResult(Message):
    """A part of `ReadShareGroupStateSummaryResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """A part of `ReadShareGroupStateSummaryResponse`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1
