"""EndTxn: commits or aborts a transaction."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: EndTxnRequest
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    try:
        transactional_id = request.transactional_id
        check(broker, context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        # The dispatcher answers a refusal that comes later: it is a code and nothing else.
        return broker.transactions.end(request, version=context.version)
    except ApiError as refusal:
        return EndTxnResponse(error_code=refusal.code)
