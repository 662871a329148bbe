"""AddPartitionsToTxn (key 24)."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, ignorable, message, since, until


@message(api=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Message):
    """The message `AddPartitionsToTxnRequest`."""

    transactions: Annotated[list[AddPartitionsToTxnTransaction], since(4)] = []
    v3_and_below_transactional_id: Annotated[str, until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], until(3)] = []


class AddPartitionsToTxnTransaction(Message):
    """A part of `AddPartitionsToTxnRequest`."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnTopic(Message):
    """A part of `AddPartitionsToTxnRequest`."""

    name: str
    partitions: list[Int32] = []


@message(api=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse(Message):
    """The message `AddPartitionsToTxnResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4), ignorable] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], since(4)] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], until(3)] = []


class AddPartitionsToTxnResult(Message):
    """A part of `AddPartitionsToTxnResponse`."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnTopicResult(Message):
    """A part of `AddPartitionsToTxnResponse`."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnPartitionResult(Message):
    """A part of `AddPartitionsToTxnResponse`."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0
