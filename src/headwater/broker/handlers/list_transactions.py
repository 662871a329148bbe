"""ListTransactions: the transactional ids that this broker coordinates, filtered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headwater.broker.authorization import may
from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError, ErrorCode
from headwater.groups.consumer.re2 import Pattern, PatternError
from headwater.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.transactions.transaction import STATES_BY_TITLE

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse | Awaitable[ListTransactionsResponse]:
    sees_all = broker.authorizer is None
    may_see = may(broker, context, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, quiet=True)
    matches: Callable[[str], bool] | None = None if sees_all else may_see
    if request.transactional_id_pattern:
        try:
            fits = Pattern(request.transactional_id_pattern).matches
        except PatternError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        # Rights first: a pattern may take long, and costs nothing where nothing may be seen.
        matches = fits if sees_all else lambda name: may_see(name) and fits(name)
    asked = dict.fromkeys(request.state_filters)
    states = [STATES_BY_TITLE[name] for name in asked if name in STATES_BY_TITLE]
    producer_ids = frozenset(request.producer_id_filters)
    now_ms = broker.clock.wall_ms()
    try:
        # The dispatcher answers a refusal that comes later: it is a code and nothing else.
        found = broker.transactions.read_all(
            lambda shard: shard.list_transactions(
                states=frozenset(states) if asked else None,
                producer_ids=producer_ids,
                duration_ms=request.duration_filter,
                matches=matches,
                now_ms=now_ms,
            )
        )
    except ApiError as refusal:
        return ListTransactionsResponse(error_code=refusal.code)
    return gathered(
        found,
        lambda lists: ListTransactionsResponse(
            unknown_state_filters=[name for name in asked if name not in STATES_BY_TITLE],
            transaction_states=[state for states in lists for state in states],
        ),
    )
