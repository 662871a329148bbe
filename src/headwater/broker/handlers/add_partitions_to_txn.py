"""AddPartitionsToTxn: what a transaction will write to.

Up to version 3 a producer adds partitions to its transaction. From version 4 on brokers ask, for
many transactions at once: to add partitions, or only to verify that they are part of it (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, check_cluster, denied
from headwater.broker.context import Context
from headwater.broker.coordinators.driver import gathered
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.topic_names import is_internal
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_MANY_SINCE = 4

Result = AddPartitionsToTxnResult | Awaitable[AddPartitionsToTxnResult]


def handle(
    broker: Broker, context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if context.version >= _MANY_SINCE:
        check_cluster(broker, context, Operation.CLUSTER_ACTION)
        # One that has to wait must not hold up the others of a batch.
        is_patient = len(request.transactions) == 1
        return gathered(
            [_result(broker, context, each, is_patient) for each in request.transactions],
            lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return gathered(
        [_result(broker, context, transaction, is_patient=True)],
        lambda results: AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=results[0].topic_results
        ),
    )


def _result(
    broker: Broker, context: Context, asked: AddPartitionsToTxnTransaction, is_patient: bool
) -> Result:
    image = broker.image
    is_client = context.version < _MANY_SINCE
    not_writable: frozenset[str] = frozenset()
    if is_client:  # a broker has checked it already
        transactional_id = asked.transactional_id
        try:
            check(broker, context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        except ApiError as refusal:
            return _refused(asked, refusal)
        names = [topic.name for topic in asked.topics if not is_internal(topic.name)]
        not_writable = denied(broker, context, Operation.WRITE, AclResource.TOPIC, names)
    refused: dict[tuple[str, int], ErrorCode] = {}
    for topic in asked.topics:
        for index in topic.partitions:
            if topic.name in not_writable or (is_client and is_internal(topic.name)):
                # Only a broker adds an internal topic, for offsets: a producer cannot write there.
                refused[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(topic.name, index) is None:
                refused[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if refused:
        return _with_codes(
            asked,
            lambda name, index: refused.get((name, index), ErrorCode.OPERATION_NOT_ATTEMPTED),
        )
    if not asked.transactional_id:
        return _with_codes(asked, lambda name, index: ErrorCode.INVALID_REQUEST)
    try:
        answer = broker.transactions.add_partitions(
            asked, version=context.version, is_patient=is_patient
        )
    except ApiError as refusal:
        return _refused(asked, refusal)
    if isinstance(answer, AddPartitionsToTxnResult):
        return answer
    return _or_refused(asked, answer)


async def _or_refused(
    asked: AddPartitionsToTxnTransaction, answer: Awaitable[AddPartitionsToTxnResult]
) -> AddPartitionsToTxnResult:
    try:
        return await answer
    except ApiError as refusal:
        return _refused(asked, refusal)


def _refused(asked: AddPartitionsToTxnTransaction, refusal: ApiError) -> AddPartitionsToTxnResult:
    return _with_codes(asked, lambda name, index: refusal.code)


def _with_codes(
    asked: AddPartitionsToTxnTransaction, code: Callable[[str, int], ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )
