"""Telling the coordinator which partitions a transaction will write to."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, ignorable, message, since, until


@message(api=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Message):
    """Add, or only verify, these partitions; brokers ask for many transactions at once."""

    transactions: Annotated[list[AddPartitionsToTxnTransaction], since(4)] = []
    v3_and_below_transactional_id: Annotated[str, until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], until(3)] = []


class AddPartitionsToTxnTransaction(Message):
    """One of the `transactions` of `AddPartitionsToTxnRequest`."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnTopic(Message):
    """One of the `v3_and_below_topics` or `topics`."""

    name: str
    partitions: list[Int32] = []


@message(api=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4), ignorable] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], since(4)] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], until(3)] = []


class AddPartitionsToTxnResult(Message):
    """One of the `results_by_transaction` of `AddPartitionsToTxnResponse`."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnTopicResult(Message):
    """One of the `results_by_topic_v3_and_below` or `topic_results`."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnPartitionResult(Message):
    """One of the `results_by_partition` of `AddPartitionsToTxnTopicResult`."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0
