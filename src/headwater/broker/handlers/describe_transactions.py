"""DescribeTransactions: the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    return gathered(
        [_describe(broker, each) for each in request.transactional_ids],
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def _describe(
    broker: Broker, transactional_id: str
) -> TransactionState | Awaitable[TransactionState]:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    try:
        state = broker.transactions.describe(transactional_id)
    except ApiError as refusal:
        return _refused(transactional_id, refusal)
    return state if isinstance(state, TransactionState) else _or_refused(transactional_id, state)


async def _or_refused(
    transactional_id: str, state: Awaitable[TransactionState]
) -> TransactionState:
    try:
        return await state
    except ApiError as refusal:
        return _refused(transactional_id, refusal)


def _refused(transactional_id: str, refusal: ApiError) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=refusal.code)
