"""Listing the transactions a coordinator knows."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, message, since


@message(api=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest(Message):
    """List those that match these filters."""

    state_filters: list[str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[str | None, since(2)] = None


@message(api=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse(Message):
    """The transactions."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []


class TransactionState(Message):
    """One of the `transaction_states` of `ListTransactionsResponse`."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""
