"""Writing the end of a transaction into the logs of its partitions."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, ignorable, message, since


@message(api=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest(Message):
    """Write these markers; from a coordinator to a leader."""

    markers: list[WritableTxnMarker] = []


class WritableTxnMarker(Message):
    """One of the `markers` of `WriteTxnMarkersRequest`."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


class WritableTxnMarkerTopic(Message):
    """One of the `topics` of `WritableTxnMarker`."""

    name: str
    partition_indexes: list[Int32] = []


@message(api=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse(Message):
    """The outcome for each partition."""

    markers: list[WritableTxnMarkerResult] = []


class WritableTxnMarkerResult(Message):
    """One of the `markers` of `WriteTxnMarkersResponse`."""

    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WritableTxnMarkerTopicResult(Message):
    """One of the `topics` of `WritableTxnMarkerResult`."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerPartitionResult(Message):
    """One of the `partitions` of `WritableTxnMarkerTopicResult`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
