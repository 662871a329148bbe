"""AddOffsetsToTxn: a transaction will commit the offsets of a group."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check
from headwater.broker.context import Context
from headwater.broker.coordinators.groups import OFFSETS_TOPIC
from headwater.broker.coordinators.hashing import partition_of
from headwater.errors import ApiError, ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    try:
        transactional_id = request.transactional_id
        check(broker, context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
    except ApiError as refusal:
        return AddOffsetsToTxnResponse(error_code=refusal.code)
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    index = broker.groups.partition_for(request.group_id)
    if index is None:  # the topic is created with so many partitions
        index = partition_of(request.group_id, broker.config.offsets_topic_num_partitions)
    try:
        # The dispatcher answers a refusal that comes later: it is a code and nothing else.
        return broker.transactions.add_offsets(
            request, TopicPartition(OFFSETS_TOPIC, index), version=context.version
        )
    except ApiError as refusal:
        return AddOffsetsToTxnResponse(error_code=refusal.code)
