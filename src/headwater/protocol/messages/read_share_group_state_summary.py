"""Reading where share partitions start, without their batches."""

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


@message(api=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryRequest(Message):
    """Sum these partitions up."""

    group_id: str
    topics: list[ReadStateSummaryData] = []


class ReadStateSummaryData(Message):
    """One of the `topics` of `ReadShareGroupStateSummaryRequest`."""

    topic_id: Uuid
    partitions: list[PartitionData] = []


class PartitionData(Message):
    """One of the `partitions` of `ReadStateSummaryData`."""

    partition: Int32
    leader_epoch: Int32


@message(api=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse(Message):
    """The sum of each partition."""

    results: list[ReadStateSummaryResult] = []


class ReadStateSummaryResult(Message):
    """One of the `results` of `ReadShareGroupStateSummaryResponse`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[PartitionResult] = []


class PartitionResult(Message):
    """One of the `partitions` of `ReadStateSummaryResult`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, since(1), ignorable] = -1
