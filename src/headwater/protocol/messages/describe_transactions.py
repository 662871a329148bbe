"""Describing transactions."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Int64, Message, message


@message(api=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest(Message):
    """Describe these transactional ids."""

    transactional_ids: list[str] = []


@message(api=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse(Message):
    """The state of each transaction."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []


class TransactionState(Message):
    """One of the `transaction_states` of `DescribeTransactionsResponse`."""

    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class TopicData(Message):
    """One of the `topics` of `TransactionState`."""

    topic: str = ""
    partitions: list[Int32] = []
