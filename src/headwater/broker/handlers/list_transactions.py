"""ListTransactions: the transactions that this node coordinates, of which there are none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.groups.consumer.re2 import Pattern, PatternError
from headwater.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    }
)


def handle(
    broker: Broker, context: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    if request.transactional_id_pattern:
        try:
            Pattern(request.transactional_id_pattern)
        except PatternError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in _STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)
