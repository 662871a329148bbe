"""DescribeTransactions: the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, denied
from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    return gathered(
        [_describe(broker, context, each) for each in request.transactional_ids],
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def _describe(
    broker: Broker, context: Context, transactional_id: str
) -> TransactionState | Awaitable[TransactionState]:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    try:
        check(broker, context, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id)
        state = broker.transactions.describe(transactional_id)
    except ApiError as refusal:
        return _refused(transactional_id, refusal)
    if isinstance(state, TransactionState):
        return _visible(broker, context, state)
    return _or_refused(broker, context, transactional_id, state)


def _visible(broker: Broker, context: Context, state: TransactionState) -> TransactionState:
    """Leaves out topics that the client may not know of."""
    names = [topic.topic for topic in state.topics]
    hidden = denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, names)
    if hidden:
        state.topics = [topic for topic in state.topics if topic.topic not in hidden]
    return state


async def _or_refused(
    broker: Broker, context: Context, transactional_id: str, state: Awaitable[TransactionState]
) -> TransactionState:
    try:
        return _visible(broker, context, await state)
    except ApiError as refusal:
        return _refused(transactional_id, refusal)


def _refused(transactional_id: str, refusal: ApiError) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=refusal.code)
