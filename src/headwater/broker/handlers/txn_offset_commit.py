"""TxnOffsetCommit: commits offsets of a group when a producer's transaction does."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, denied
from headwater.broker.context import Context
from headwater.broker.coordinators.groups import OFFSETS_TOPIC
from headwater.broker.transaction_verification import (
    Producer,
    Verified,
    offset_commit_generation,
)
from headwater.errors import ApiError, ErrorCode
from headwater.groups.offsets import commit_in_transaction_refused
from headwater.model import TopicPartition
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

_NO_SEQUENCE = -1
_KNOWS_LOADING_SINCE = 2

# How the groups' clients know what may happen to a verification. The first one has them send the
# request again, and look up nothing.
_CODES = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

Missing = list[TxnOffsetCommitResponseTopic]


def handle(
    broker: Broker, context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    try:
        transactional_id = request.transactional_id
        check(broker, context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        check(broker, context, Operation.READ, AclResource.GROUP, request.group_id)
    except ApiError as refusal:
        return _refused(request, refusal.code, context, [])
    missing = _remove_missing(broker, context, request)
    if missing and not request.topics:
        return TxnOffsetCommitResponse(topics=missing)
    if not request.group_id:
        return _refused(request, ErrorCode.INVALID_GROUP_ID, context, missing)
    index = broker.groups.partition_for(request.group_id)
    if index is None:
        return _refused(request, ErrorCode.NOT_COORDINATOR, context, missing)
    tp = TopicPartition(OFFSETS_TOPIC, index)
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    verified = broker.verification.verify(
        producer, {tp: _NO_SEQUENCE}, offset_commit_generation(context.version)
    )
    if not isinstance(verified, Verified):
        return _commit_later(broker, context, request, tp, verified, missing)
    answer = _commit(broker, context, request, tp, verified)
    if isinstance(answer, TxnOffsetCommitResponse):
        return _merged(answer, context, missing)
    return _merged_later(request, answer, context, missing)


def _commit(
    broker: Broker,
    context: Context,
    request: TxnOffsetCommitRequest,
    tp: TopicPartition,
    verified: Verified,
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    code = verified.codes.get(tp)
    if code is not None:
        return commit_in_transaction_refused(request, _CODES.get(code, code))
    try:
        return broker.groups.ask_in_transaction(
            request,
            verified.guards.get(tp),
            lambda shard, token: shard.decide_commit_in_transaction(
                token,
                request,
                version=context.version,
                now=broker.clock.monotonic(),
                now_ms=broker.clock.wall_ms(),
            ),
        )
    except ApiError as refusal:
        return commit_in_transaction_refused(request, refusal.code)


async def _commit_later(
    broker: Broker,
    context: Context,
    request: TxnOffsetCommitRequest,
    tp: TopicPartition,
    verified: Awaitable[Verified],
    missing: Missing,
) -> TxnOffsetCommitResponse:
    answer = _commit(broker, context, request, tp, await verified)
    if isinstance(answer, TxnOffsetCommitResponse):
        return _merged(answer, context, missing)
    return await _merged_later(request, answer, context, missing)


def _refused(
    request: TxnOffsetCommitRequest, code: ErrorCode, context: Context, missing: Missing
) -> TxnOffsetCommitResponse:
    return _merged(commit_in_transaction_refused(request, code), context, missing)


def _merged(
    response: TxnOffsetCommitResponse, context: Context, missing: Missing
) -> TxnOffsetCommitResponse:
    """Merges the results of partitions that exist and of those that do not."""
    if context.version < _KNOWS_LOADING_SINCE:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    by_topic = {topic.name: topic for topic in response.topics}
    for topic in missing:
        known = by_topic.get(topic.name)
        if known is not None:
            known.partitions += topic.partitions
        else:
            response.topics.append(topic)
    return response


async def _merged_later(
    request: TxnOffsetCommitRequest,
    answer: Awaitable[TxnOffsetCommitResponse],
    context: Context,
    missing: Missing,
) -> TxnOffsetCommitResponse:
    try:
        response = await answer
    except ApiError as refusal:  # the group has moved, or too few replicas have the commit
        response = commit_in_transaction_refused(request, refusal.code)
    return _merged(response, context, missing)


def _remove_missing(broker: Broker, context: Context, request: TxnOffsetCommitRequest) -> Missing:
    """Removes partitions that do not exist from the request; returns their results."""
    names = (topic.name for topic in request.topics)
    unreadable = denied(broker, context, Operation.READ, AclResource.TOPIC, names)
    missing: Missing = []
    known: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        found = broker.image.topics.get(topic.name)
        here: list[TxnOffsetCommitRequestPartition] = []
        gone: list[TxnOffsetCommitRequestPartition] = []
        for partition in topic.partitions:
            exists = found is not None and partition.partition_index in found.partitions
            (here if exists else gone).append(partition)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.name in unreadable:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            here, gone = [], topic.partitions
        if gone:
            missing.append(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=code,
                        )
                        for partition in gone
                    ],
                )
            )
        if here:
            topic.partitions = here
            known.append(topic)
    request.topics = known
    return missing
