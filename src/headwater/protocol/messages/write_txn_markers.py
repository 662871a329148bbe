"""WriteTxnMarkers (key 27)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, ignorable, message, since


@message(api=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest(Message):
    """The message `WriteTxnMarkersRequest`."""

    markers: list[WritableTxnMarker] = []


class WritableTxnMarker(Message):
    """A part of `WriteTxnMarkersRequest`."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


class WritableTxnMarkerTopic(Message):
    """A part of `WriteTxnMarkersRequest`."""

    name: str
    partition_indexes: list[Int32] = []


@message(api=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse(Message):
    """The message `WriteTxnMarkersResponse`."""

    markers: list[WritableTxnMarkerResult] = []


class WritableTxnMarkerResult(Message):
    """A part of `WriteTxnMarkersResponse`."""

    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WritableTxnMarkerTopicResult(Message):
    """A part of `WriteTxnMarkersResponse`."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerPartitionResult(Message):
    """A part of `WriteTxnMarkersResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
