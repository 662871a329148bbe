"""Produce: appends each partition's batch, then responds when `acks` is satisfied.

Everything up to the append runs before the first wait, in the order in which the connection sent
it. The exception are batches that begin a transaction in their partition, which may have to wait
for their coordinator's answer: what the connection sends meanwhile waits behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from headwater.broker.authorization import is_allowed, unwritable_topics
from headwater.broker.context import Context, InOrder, Later
from headwater.broker.partition import ALL_IN_SYNC, Done, Partition
from headwater.broker.transaction_verification import Producer, Verified, produce_generation
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.topic_names import is_internal
from headwater.model import NO_PRODUCER_ID, TopicPartition, id_text
from headwater.net.connection import CloseConnection
from headwater.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.storage import Origin, RecordsRefused, Verification

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.broker.broker import Broker

# Members of an Enum are slow to look up.
_CLIENT = Origin.CLIENT

# The client id with which Kafka's own tools may write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"

_ACKS = (0, 1, ALL_IN_SYNC)

_LENGTH_END = 12  # a batch begins with its offset and its length
_OLDEST_HEADER_BYTES = 26  # a smaller length is impossible in any version of the format
_MAGIC = 16
_MAGIC_NEWEST = 2
_ATTRIBUTES = 22  # the position of the low byte of a batch's attributes
_CODEC = 0x07
_ZSTD = 4
_ZSTD_SINCE = 7  # the version of Produce
_TRANSACTIONAL = 0x10
_PRODUCER_ID = 43
_PRODUCER = Struct(">qhi")  # id, epoch, first sequence
_HEAD_END = _PRODUCER_ID + _PRODUCER.size

# With these errors Kafka does not return the log start; with all others it does.
_SAYS_NOTHING_OF_THE_LOG = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )
)
# A transaction cannot be verified now. Old clients do not expect these codes; this one has them
# send again, and look up nothing.
_RETRIABLE = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def handle(
    broker: Broker, context: Context, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    data = request.topic_data
    if len(data) == 1 and len(data[0].partition_data) == 1:
        is_transactional = _is_transactional(data[0].partition_data[0].records)
    else:
        _keep_last(data)
        is_transactional = any(
            _is_transactional(batch.records) for topic in data for batch in topic.partition_data
        )
    if is_transactional:
        return _produce_in_transaction(broker, context, request)
    return _append(broker, context, request, None)


def _is_transactional(records: bytes | memoryview | None) -> bool:
    return (
        records is not None
        and len(records) > _ATTRIBUTES
        and records[_ATTRIBUTES] & _TRANSACTIONAL != 0
    )


def _append(
    broker: Broker, context: Context, request: ProduceRequest, verified: Verified | None
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    acks, version = request.acks, context.version
    by_id = version >= 13
    now_ms = broker.clock.wall_ms()
    not_writable = None if broker.authorizer is None else _not_writable(broker, context, request)
    waits: list[_Wait] | None = None
    failed = False
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        if not topic.partition_data:
            continue
        name = broker.partitions.name_of(topic.topic_id) if by_id else topic.name
        is_denied = not_writable is not None and name in not_writable
        results: list[PartitionProduceResponse] = []
        topics.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=results
            )
        )
        for batch in topic.partition_data:
            result = PartitionProduceResponse(index=batch.index, base_offset=-1)
            results.append(result)
            records = batch.records or b""
            partition: Partition | None = None
            guard: Verification | None = None
            try:
                if acks not in _ACKS:
                    raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}")
                if is_denied:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = _partition(broker, context, name, topic.topic_id, batch.index)
                if version < _ZSTD_SINCE:
                    _check_codec(records, version)
                if verified is not None:
                    guard = _guard(verified, partition.tp, version)
                appended = partition.append(
                    records, acks=acks, now_ms=now_ms, origin=_CLIENT, guard=guard
                )
            except ApiError as refusal:
                failed = True
                if partition is not None:
                    refusal = _framing_refusal(records, context.version) or refusal
                _refuse(broker, context, result, name, partition, refusal, len(records))
                continue
            result.base_offset = appended.base_offset
            result.log_append_time_ms = appended.log_append_time
            result.log_start_offset = appended.log_start
            end = appended.last_offset + 1
            if partition.needs_flush() or (acks == ALL_IN_SYNC and partition.high_watermark < end):
                waits = waits or []
                waits.append(_Wait(partition, end, result))
    response = ProduceResponse(responses=topics)
    if failed and context.version >= 10:
        _add_endpoints(broker, context, response)
    if acks == 0:
        if failed:
            raise _unanswered(_first_error(response))
        return None
    if waits is None:
        return response
    if any(wait.partition.needs_flush() for wait in waits):
        return _flush_and_wait(broker, context, response, waits, request)
    return _Replication(broker, context, response, waits).start(request.timeout_ms)


def _not_writable(broker: Broker, context: Context, request: ProduceRequest) -> frozenset[str]:
    """Returns the topics of a request to which the client may not write."""
    data = request.topic_data
    if context.version >= 13:
        names = [broker.partitions.name_of(topic.topic_id) for topic in data]
        return unwritable_topics(broker, context, names)
    if len(data) == 1:  # as nearly always; a comprehension takes as long as the check
        return unwritable_topics(broker, context, (data[0].name,))
    return unwritable_topics(broker, context, [topic.name for topic in data])


def _unanswered(code: ErrorCode) -> CloseConnection:
    # The client expects no response: closing the connection is the only way to tell it.
    return CloseConnection(f"a produce request with acks=0 failed: {code.name}")


# Transactions


def _produce_in_transaction(
    broker: Broker, context: Context, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Appends the batches of a request with transactional ones, once their coordinator knows that
    the transaction has reached these partitions."""
    transactional_id = request.transactional_id
    if transactional_id is None or not is_allowed(
        broker, context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id
    ):
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)
    not_writable = (
        frozenset() if broker.authorizer is None else _not_writable(broker, context, request)
    )
    sequences: dict[TopicPartition, int] = {}
    producers: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        by_id = context.version >= 13
        name = broker.partitions.name_of(topic.topic_id) if by_id else topic.name
        for batch in topic.partition_data:
            head = _transactional_head(batch.records)
            # What would be refused anyway is not added to a transaction.
            if (
                head is None
                or name in not_writable
                or _framing_refusal(batch.records or b"", context.version)
            ):
                continue
            try:
                partition = _partition(broker, context, name, topic.topic_id, batch.index)
            except ApiError:
                continue
            producer_id, epoch, sequence = head
            producers.add((producer_id, epoch))
            sequences[partition.tp] = sequence
    if len(producers) > 1:
        text = "the batches of a transactional request have several producer ids"
        return _refuse_all(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    if not producers or request.acks not in _ACKS:
        return _append(broker, context, request, None)
    producer = Producer(transactional_id, *producers.pop())
    verified = broker.verification.verify_patiently(
        producer, sequences, produce_generation(context.version)
    )
    if isinstance(verified, Verified):
        return _append(broker, context, request, verified)
    for topic in request.topic_data:
        for batch in topic.partition_data:
            # The bytes of the request are gone when this returns.
            batch.records = memoryview(bytearray(batch.records or b""))
    return InOrder(_append_later(broker, context, request, verified))


async def _append_later(
    broker: Broker, context: Context, request: ProduceRequest, verified: Awaitable[Verified]
) -> ProduceResponse | None:
    handled = _append(broker, context, request, await verified)
    return await handled if isinstance(handled, Awaitable) else handled


def _transactional_head(records: Buffer | None) -> tuple[int, int, int] | None:
    """Returns producer id, epoch and first sequence of a transactional batch."""
    view = memoryview(records or b"").cast("B")
    if len(view) < _HEAD_END or not view[_ATTRIBUTES] & _TRANSACTIONAL:
        return None
    head = _PRODUCER.unpack_from(view, _PRODUCER_ID)
    return head if head[0] != NO_PRODUCER_ID else None


class _NotVerified(ApiError):
    """The coordinator does not confirm that the partition is part of the transaction."""


def _guard(verified: Verified, tp: TopicPartition, version: int) -> Verification | None:
    """Returns the guard for a batch, None if it needs none; raises what its coordinator said
    against it."""
    code = verified.codes.get(tp)
    if code is None:
        return verified.guards.get(tp)
    text: str | None = None
    if code is ErrorCode.INVALID_TXN_STATE:
        text = "the partition is not part of the transaction"
    elif code in _RETRIABLE or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and not produce_generation(version).adds
    ):
        text = f"the transaction cannot be verified now: {code.name}"
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    raise _NotVerified(code, text)


def _refuse_all(request: ProduceRequest, code: ErrorCode, text: str | None) -> ProduceResponse:
    if request.acks == 0:
        raise _unanswered(code)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=batch.index, base_offset=-1, error_code=code, error_message=text
                    )
                    for batch in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


# Each batch


class _Wait:
    """An append that is not yet as safe as `acks` and `flush.messages` require."""

    __slots__ = ("end", "leader", "partition", "result")

    def __init__(self, partition: Partition, end: int, result: PartitionProduceResponse) -> None:
        self.partition = partition
        self.leader = partition.leader  # of the epoch in which it was appended
        self.end = end
        self.result = result


def _keep_last(data: list[TopicProduceData]) -> None:
    """Drops all but the last batch of a partition that a request names twice, as Kafka does."""
    last: dict[tuple[str, bytes, int], PartitionProduceData] = {}
    for topic in data:
        for batch in topic.partition_data:
            last[topic.name, topic.topic_id, batch.index] = batch
    for topic in data:
        kept = [
            batch
            for batch in topic.partition_data
            if last[topic.name, topic.topic_id, batch.index] is batch
        ]
        if len(kept) != len(topic.partition_data):
            topic.partition_data = kept


def _check_codec(records: Buffer, version: int) -> None:
    view = memoryview(records).cast("B")
    if len(view) > _ATTRIBUTES and view[_ATTRIBUTES] & _CODEC == _ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd requires Produce version {_ZSTD_SINCE}, this is {version}",
        )


class _FramingRefused(ApiError):
    """The bytes are not one record batch; the log was not involved."""


def _framing_refusal(records: Buffer, version: int) -> ApiError | None:
    """Returns the error of a malformed frame, if it is one. Kafka checks the frame of a batch
    before the log does; here it is checked afterwards, and only after a failure."""
    view = memoryview(records).cast("B")
    if len(view) < _LENGTH_END:
        return _FramingRefused(ErrorCode.INVALID_RECORD)
    size = _LENGTH_END + int.from_bytes(view[8:_LENGTH_END], "big", signed=True)
    if size < _OLDEST_HEADER_BYTES:
        return _FramingRefused(ErrorCode.CORRUPT_MESSAGE, f"a record batch claims {size} bytes")
    if len(view) <= _MAGIC:
        return _FramingRefused(ErrorCode.INVALID_RECORD)
    magic = view[_MAGIC]
    if magic > _MAGIC_NEWEST:
        return _FramingRefused(
            ErrorCode.CORRUPT_MESSAGE, f"the batch has magic {magic}; valid are 0, 1 and 2"
        )
    if size > len(view) or magic < _MAGIC_NEWEST or _has_another(view[size:]):
        return _FramingRefused(ErrorCode.INVALID_RECORD)
    if version < _ZSTD_SINCE and view[_ATTRIBUTES] & _CODEC > _ZSTD:
        return _FramingRefused(ErrorCode.INVALID_RECORD)
    return None


def _has_another(rest: memoryview) -> bool:
    """Returns whether a whole batch follows the first."""
    if len(rest) < _LENGTH_END:
        return False
    size = _LENGTH_END + int.from_bytes(rest[8:_LENGTH_END], "big", signed=True)
    return _OLDEST_HEADER_BYTES <= size <= len(rest)


def _partition(
    broker: Broker, context: Context, name: str | None, topic_id: bytes, index: int
) -> Partition:
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {id_text(topic_id)}")
    if is_internal(name) and context.client_id != _ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic")
    return broker.partitions.get(name, index)


def _refuse(
    broker: Broker,
    context: Context,
    result: PartitionProduceResponse,
    name: str | None,
    partition: Partition | None,
    refusal: ApiError,
    sent_bytes: int,
) -> None:
    result.error_code = refusal.code
    if partition is not None:
        _count_refused(partition, refusal.code, sent_bytes)
    if isinstance(refusal, _FramingRefused | _NotVerified):
        result.error_message = refusal.message or None
    elif partition is not None and refusal.code not in _SAYS_NOTHING_OF_THE_LOG:
        result.log_start_offset = partition.log.start
    if isinstance(refusal, RecordsRefused):
        result.error_message = refusal.message
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
            for at, why in refusal.record_errors
        ]
    not_leader = refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not_leader and name is not None and context.version >= 10:
        _hint_leader(broker, name, result)


def _count_refused(partition: Partition, code: ErrorCode, sent_bytes: int) -> None:
    """Counts a batch as too large, or as failed unless clients are known to cause such an error, as
    Kafka does."""
    traffic = partition.traffic
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        traffic.on_refused(sent_bytes)
    elif code not in _SAYS_NOTHING_OF_THE_LOG:
        traffic.on_failed_produce()


def _hint_leader(broker: Broker, name: str, result: PartitionProduceResponse) -> None:
    leader = broker.partitions.leader_hint(name, result.index)
    if leader is not None:
        result.current_leader = LeaderIdAndEpoch(
            leader_id=leader.node_id, leader_epoch=leader.epoch
        )


def _add_endpoints(broker: Broker, context: Context, response: ProduceResponse) -> None:
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partition_responses
        if partition.current_leader is not None
    }
    if not leaders:
        return
    response.node_endpoints = [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.endpoints(context)
        if node.id in leaders
    ]


def _first_error(response: ProduceResponse) -> ErrorCode:
    return next(
        ErrorCode(partition.error_code)
        for topic in response.responses
        for partition in topic.partition_responses
        if partition.error_code
    )


class _Replication:
    """A produce request whose appends are not on all in-sync replicas yet. It costs nothing until
    the high watermarks of its partitions pass them."""

    __slots__ = ("_broker", "_context", "_done", "_response", "_timer", "_waiting")

    def __init__(
        self, broker: Broker, context: Context, response: ProduceResponse, waits: list[_Wait]
    ) -> None:
        self._broker = broker
        self._context = context
        self._response = response
        self._waiting: dict[_Wait, Done] = {
            wait: partial(self._on_replicated, wait) for wait in waits
        }
        self._done = Later()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, timeout_ms: int) -> Later:
        for wait, done in list(self._waiting.items()):
            if wait.partition.leader is not wait.leader:
                # While the append was flushed. What is committed here now may be another leader's.
                done(wait.partition.not_leader())
            elif wait.partition.high_watermark >= wait.end:
                done(None)
            else:
                wait.partition.when_replicated(wait.end, done)
        if self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._on_timeout)
        return self._done

    def _on_replicated(self, wait: _Wait, failure: ApiError | None) -> None:
        if self._waiting.pop(wait, None) is None:
            return
        try:
            if failure is not None:
                raise failure
            wait.partition.check_enough_in_sync()
        except ApiError as refusal:
            self._fail(wait, refusal.code)
        if not self._waiting:
            self._finish()

    def _on_timeout(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for wait, done in waiting.items():
            wait.partition.forget(wait.end, done)
            self._fail(wait, ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _fail(self, wait: _Wait, code: ErrorCode) -> None:
        wait.result.error_code = code
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self._context.version >= 10:
            _hint_leader(self._broker, wait.partition.tp.topic, wait.result)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._context.version >= 10:
            _add_endpoints(self._broker, self._context, self._response)
        self._done.answer(self._response)


async def _flush_and_wait(
    broker: Broker,
    context: Context,
    response: ProduceResponse,
    waits: list[_Wait],
    request: ProduceRequest,
) -> ProduceResponse | None:
    for wait in waits:
        try:
            if wait.partition.needs_flush():
                await wait.partition.flush()
        except ApiError as refusal:
            wait.result.error_code = refusal.code
            wait.result.base_offset = -1
    left = [wait for wait in waits if not wait.result.error_code]
    if request.acks != ALL_IN_SYNC or not left:
        return response
    await _Replication(broker, context, response, left).start(request.timeout_ms)
    return response
