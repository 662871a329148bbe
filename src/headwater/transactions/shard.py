"""The transaction coordinator's machine for one partition of `__transaction_state`.

It holds every transactional id that hashes to the partition. A request becomes a `Decision`; the
driver writes its records, hands each back to `apply`, and replies when they are committed. Only
`apply` changes what must survive, so that a shard loaded from its log is the shard that wrote it.

A transaction ends in three steps. The record of its outcome (`PrepareCommit`, `PrepareAbort`) is
the point of no return. Once it is committed, the effect `SendMarkers` has a marker written to each
partition of the transaction; `on_markers_written` reports them. When none is missing, the record
`CompleteCommit` or `CompleteAbort` lets the producer go on. A shard that is loaded sends the
markers of all transactions that it finds in between, so that nothing but the log is needed for it.

Refusals are replies, too, and not exceptions: they rest on what earlier requests have written, and
must not be heard before that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf, nextafter

from headwater.coordination import (
    NO_PRODUCER,
    NOTHING,
    Decision,
    DecisionBuilder,
    Record,
    Token,
)
from headwater.errors import ApiError, ErrorCode
from headwater.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from headwater.protocol.messages import describe_transactions, list_transactions
from headwater.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headwater.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.transaction import (
    NO_TIMEOUT_MS,
    Identity,
    NeedsProducerId,
    State,
    Transaction,
    first_of,
    raises_epoch,
)

# From these versions on the client knows PRODUCER_FENCED; before, it is INVALID_PRODUCER_EPOCH.
_INIT_KNOWS_FENCED_SINCE = 4
_KNOWS_FENCED_SINCE = 2
# From these versions on the client speaks transaction version 2 (KIP-890).
_ADD_PARTITIONS_V2_SINCE = 4
_END_V2_SINCE = 5
_V1, _V2 = 0, 2

_NO_IDENTITY = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
# The most ids that expire in one decision.
_EXPIRED_MAX = 1000


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """An effect: write a marker to each of these partitions, however often it has to be tried.

    `on_markers_written` is told of those that are written, in one call or in several. A partition
    that no longer exists counts as written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


@dataclass(frozen=True, slots=True)
class GetProducerId:
    """An effect: get a producer id and pass it to `on_producer_id`."""


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings
        self._transactions: dict[str, Transaction] = {}
        # The ids with an ongoing transaction, and for those that are preparing, the partitions
        # whose marker is missing.
        self._ongoing: dict[str, None] = {}
        self._unmarked: dict[str, set[TopicPartition]] = {}
        self._markers: dict[str, SendMarkers] = {}
        # The epoch before the latest one, where a client has told that it knows it: what is
        # missing here may be told by the record. Soft, as in Kafka.
        self._last_epochs: dict[str, int] = {}
        self._timeout_check = inf
        self._expiration_check = inf

    # Requests

    def decide_init(
        self,
        token: Token,
        request: InitProducerIdRequest,
        *,
        version: int,
        new_producer_id: int | None = None,
        now: float,
        now_ms: int,
    ) -> Decision:
        """Gives the client an id and an epoch, and fences its earlier instances.

        Raises NeedsProducerId if that takes a new id. An ongoing transaction is aborted first: the
        client hears CONCURRENT_TRANSACTIONS, and tries again. The transactional id is not null.
        """
        builder = DecisionBuilder(now, now_ms)
        try:
            response = self._init(request, builder, new_producer_id)
        except NeedsProducerId:
            raise
        except ApiError as refusal:
            response = InitProducerIdResponse(
                error_code=_known(refusal.code, version >= _INIT_KNOWS_FENCED_SINCE),
                producer_epoch=NO_PRODUCER_EPOCH,
            )
        builder.reply(token, response)
        return builder.decision()

    def decide_add_partitions(
        self,
        token: Token,
        request: AddPartitionsToTxnTransaction,
        *,
        version: int,
        now: float,
        now_ms: int,
    ) -> Decision:
        """Adds partitions to a transaction, or only verifies that they are part of it. The reply is
        an AddPartitionsToTxnResult. All partitions exist: the handler has seen to it."""
        builder = DecisionBuilder(now, now_ms)
        partitions = [
            TopicPartition(topic.name, index)
            for topic in request.topics
            for index in topic.partitions
        ]
        client = Identity(request.producer_id, request.producer_epoch)
        present: Collection[TopicPartition] = partitions
        code = ErrorCode.NONE
        try:
            if request.verify_only:
                present = self._verified(request.transactional_id, client)
            else:
                client_version = _V2 if version >= _ADD_PARTITIONS_V2_SINCE else _V1
                self._add(request.transactional_id, client, partitions, client_version, builder)
        except ApiError as refusal:
            # A verification has the same codes for all versions, as in Kafka: brokers send it.
            code = _known(refusal.code, request.verify_only or version >= _KNOWS_FENCED_SINCE)

        def result(tp: TopicPartition) -> ErrorCode:
            if code is ErrorCode.NONE and tp not in present:
                return ErrorCode.TRANSACTION_ABORTABLE
            return code

        builder.reply(
            token,
            AddPartitionsToTxnResult(
                transactional_id=request.transactional_id,
                topic_results=_topic_results(request.topics, result),
            ),
        )
        return builder.decision()

    def decide_add_offsets(
        self,
        token: Token,
        request: AddOffsetsToTxnRequest,
        *,
        partition: TopicPartition,
        version: int,
        now: float,
        now_ms: int,
    ) -> Decision:
        """Adds the partition of `__consumer_offsets` that has the offsets of the group."""
        builder = DecisionBuilder(now, now_ms)
        client = Identity(request.producer_id, request.producer_epoch)
        code = ErrorCode.NONE
        try:
            # A client of version 2 does without this request.
            self._add(request.transactional_id, client, (partition,), _V1, builder)
        except ApiError as refusal:
            code = _known(refusal.code, version >= _KNOWS_FENCED_SINCE)
        builder.reply(token, AddOffsetsToTxnResponse(error_code=code))
        return builder.decision()

    def decide_end(
        self,
        token: Token,
        request: EndTxnRequest,
        *,
        version: int,
        new_producer_id: int | None = None,
        now: float,
        now_ms: int,
    ) -> Decision:
        """Commits or aborts a transaction. The reply leaves when the outcome is certain, and need
        not wait for the markers. Raises NeedsProducerId if the epochs of the id are exhausted."""
        builder = DecisionBuilder(now, now_ms)
        try:
            if version >= _END_V2_SINCE:
                client = self._end_v2(request, builder, new_producer_id)
            else:
                client = self._end_v1(request, builder)
            response = EndTxnResponse(producer_id=client.producer_id, producer_epoch=client.epoch)
        except NeedsProducerId:
            raise
        except ApiError as refusal:
            code = _known(refusal.code, version >= _KNOWS_FENCED_SINCE)
            response = EndTxnResponse(error_code=code)
        builder.reply(token, response)
        return builder.decision()

    # Initializing

    def _init(
        self,
        request: InitProducerIdRequest,
        builder: DecisionBuilder,
        new_producer_id: int | None,
    ) -> InitProducerIdResponse:
        transactional_id = request.transactional_id
        asked = Identity(request.producer_id, request.producer_epoch)
        expected = None if asked == _NO_IDENTITY else asked
        if not transactional_id or (
            expected is not None and (NO_PRODUCER_ID in expected or NO_PRODUCER_EPOCH in expected)
        ):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        timeout_ms = self._timeout_ms(request)
        now_ms = builder.now_ms
        before = self._transactions.get(transactional_id)
        if before is None:
            client = first_of(new_producer_id)
            created = Transaction.created(client, timeout_ms=timeout_ms, now_ms=now_ms)
            self._write(transactional_id, created, builder)
            return InitProducerIdResponse(producer_id=client.producer_id, producer_epoch=0)
        if before.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_ongoing = before.state is State.ONGOING
        if is_ongoing and not request.keep_prepared_txn:
            # Kafka lets any epoch of the same id abort a transaction. A late request of a fenced
            # instance must not: it is refused here as it is when it is repeated.
            if expected not in (None, before.client):
                raise ApiError(ErrorCode.PRODUCER_FENCED)
            self._abort(transactional_id, before, builder, new_producer_id)
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        client = before.next_client(
            expected,
            last_epoch=self._last_epoch(transactional_id),
            new_producer_id=new_producer_id,
        )
        last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.epoch
        self._set_last_epoch(transactional_id, last_epoch)
        change = before.kept if is_ongoing else before.initialized
        self._write(transactional_id, change(client, timeout_ms=timeout_ms, now_ms=now_ms), builder)
        ongoing = before.writer if is_ongoing else _NO_IDENTITY
        return InitProducerIdResponse(
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            ongoing_txn_producer_id=ongoing.producer_id,
            ongoing_txn_producer_epoch=ongoing.epoch,
        )

    def _timeout_ms(self, request: InitProducerIdRequest) -> int:
        settings = self._settings
        if request.enable_2pc:
            if not settings.two_phase_commit:
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return NO_TIMEOUT_MS
        if not 0 < request.transaction_timeout_ms <= settings.timeout_ms_max:
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return request.transaction_timeout_ms

    # Partitions

    def _add(
        self,
        transactional_id: str,
        client: Identity,
        partitions: Sequence[TopicPartition],
        client_version: int,
        builder: DecisionBuilder,
    ) -> None:
        before = self._found(transactional_id)
        # Before the client is checked: it may have the id and epoch that follow the transaction.
        if before.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        before.check_client(client)
        if before.is_kept:  # all that is left to do with it is to end it
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        if before.state is State.ONGOING and set(partitions) <= set(before.partitions):
            return
        after = before.with_partitions(
            partitions, client_version=client_version, now_ms=builder.now_ms
        )
        self._write(transactional_id, after, builder)
        self._expect_timeout(builder.now)

    def _verified(self, transactional_id: str, client: Identity) -> frozenset[TopicPartition]:
        """Returns the partitions of the client's transaction."""
        found = self._found(transactional_id)
        found.check_client(client)
        if found.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if found.is_kept:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        return frozenset(found.partitions)

    def _found(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        found = self._transactions.get(transactional_id)
        if found is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return found

    # Ending

    def _end_v1(self, request: EndTxnRequest, builder: DecisionBuilder) -> Identity:
        before = self._found(request.transactional_id)
        before.check_client(Identity(request.producer_id, request.producer_epoch))
        if before.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if before.is_complete and before.commits == request.committed:
            return _NO_IDENTITY  # a repeated request
        if before.state is not State.ONGOING:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        prepared = before.prepared(
            commits=request.committed,
            marker_epoch=before.producer_epoch,
            client=before.client,
            client_version=_V1,
            now_ms=builder.now_ms,
        )
        self._prepare(request.transactional_id, prepared, builder)
        return _NO_IDENTITY

    def _end_v2(
        self, request: EndTxnRequest, builder: DecisionBuilder, new_producer_id: int | None
    ) -> Identity:
        """Returns the id and epoch to go on with. Every end raises the epoch, so that a late
        request of an earlier transaction cannot end a later one, and a repeated request is told
        from a new one by its epoch."""
        before = self._found(request.transactional_id)
        if before.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        asked = Identity(request.producer_id, request.producer_epoch)
        if before.has_missed_the_end(asked):
            if before.commits != request.committed:
                raise ApiError(ErrorCode.INVALID_TXN_STATE)
            return before.client
        before.check_client(asked)
        if before.state is not State.ONGOING and request.committed:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        # An abort without a transaction is welcome: with version 2 the client cannot know whether
        # its transaction has begun.
        prepared = before.ended(
            commits=request.committed,
            client_version=_V2,
            new_producer_id=new_producer_id,
            now_ms=builder.now_ms,
        )
        self._set_last_epoch(request.transactional_id, NO_PRODUCER_EPOCH)  # the record tells it
        self._prepare(request.transactional_id, prepared, builder)
        return prepared.completed(now_ms=builder.now_ms).client

    def _abort(
        self,
        transactional_id: str,
        before: Transaction,
        builder: DecisionBuilder,
        new_producer_id: int | None,
    ) -> None:
        """Aborts an ongoing transaction that its client does not end, and fences the client."""
        if raises_epoch(self._settings.transaction_version):
            prepared = before.ended(
                commits=False,
                client_version=_V2,
                new_producer_id=new_producer_id,
                now_ms=builder.now_ms,
            )
        else:
            prepared = before.prepared(
                commits=False,
                marker_epoch=before.writer.raised.epoch,
                client=before.client.raised,
                client_version=_V1,
                now_ms=builder.now_ms,
            )
        self._set_last_epoch(transactional_id, NO_PRODUCER_EPOCH)
        self._prepare(transactional_id, prepared, builder)

    def _prepare(
        self, transactional_id: str, prepared: Transaction, builder: DecisionBuilder
    ) -> None:
        self._write(transactional_id, prepared, builder)
        if prepared.partitions:
            builder.effects.append(self._send_markers(transactional_id, prepared))
        else:
            self._write(transactional_id, prepared.completed(now_ms=builder.now_ms), builder)

    def _send_markers(self, transactional_id: str, prepared: Transaction) -> SendMarkers:
        markers = SendMarkers(
            transactional_id,
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.commits,
            prepared.partitions,
            prepared.client_version,
        )
        self._markers[transactional_id] = markers
        return markers

    def on_markers_written(
        self, markers: SendMarkers, partitions: Iterable[TopicPartition], *, now_ms: int
    ) -> Decision:
        """Markers are in the logs of these partitions, committed. Completes the transaction if they
        were the last.

        `markers` is the effect itself and no copy. With version 1 the next transaction has the same
        id and epoch, and must not take a late report about this one for its own.
        """
        transactional_id = markers.transactional_id
        if self._markers.get(transactional_id) is not markers:
            return NOTHING
        unmarked = self._unmarked[transactional_id]
        unmarked.difference_update(partitions)
        if unmarked:
            return NOTHING
        builder = DecisionBuilder(0.0, now_ms)
        completed = self._transactions[transactional_id].completed(now_ms=now_ms)
        self._write(transactional_id, completed, builder)
        return builder.decision()

    def knows(self, transactional_id: str) -> bool:
        return transactional_id in self._transactions

    def ending_since_ms(self, transactional_id: str) -> int | None:
        """Returns when a transaction was decided that still lacks markers; None if there is none.
        Until it has them, its client can begin nothing."""
        if transactional_id not in self._unmarked:
            return None
        return self._transactions[transactional_id].updated_ms

    # Time

    def next_deadline(self) -> float:
        return min(self._timeout_check, self._expiration_check)

    def on_tick(self, now: float, now_ms: int) -> Decision:
        builder = DecisionBuilder(now, now_ms)
        builder.is_atomic = False
        if now >= self._timeout_check:
            self._timeout_check = inf
            self._complete_unmarked(builder)
            self._abort_timed_out(builder, None)
            if self._ongoing:
                self._expect_timeout(now)
        if now >= self._expiration_check:
            if self._expire(builder):
                interval_ms = self._settings.expiration_check_interval_ms
                self._expiration_check = now + interval_ms / 1000
            else:
                self._expiration_check = nextafter(now, inf)
        return builder.decision()

    def on_producer_id(self, producer_id: int, now: float, now_ms: int) -> Decision:
        """A producer id that `GetProducerId` asked for: a transaction has timed out whose
        client's epochs are exhausted."""
        builder = DecisionBuilder(now, now_ms)
        builder.is_atomic = False
        self._abort_timed_out(builder, producer_id)
        return builder.decision()

    def _expect_timeout(self, now: float) -> None:
        if self._timeout_check == inf:
            self._timeout_check = now + self._settings.timeout_check_interval_ms / 1000

    def _abort_timed_out(self, builder: DecisionBuilder, new_producer_id: int | None) -> None:
        for transactional_id in self._ongoing:
            transaction = self._transactions[transactional_id]
            if not transaction.has_timed_out(builder.now_ms):
                continue
            try:
                self._abort(transactional_id, transaction, builder, new_producer_id)
            except NeedsProducerId:
                # One at a time: the next one asks again when this one's id has come.
                if GetProducerId() not in builder.effects:
                    builder.effects.append(GetProducerId())
                continue
            if transaction.client.is_exhausted:
                new_producer_id = None
            builder.note(
                f"transactional id {transactional_id}: aborted a transaction that was not ended "
                f"within {transaction.timeout_ms} ms"
            )

    def _complete_unmarked(self, builder: DecisionBuilder) -> None:
        """Completes transactions that were loaded with nothing left to mark."""
        for transactional_id, unmarked in self._unmarked.items():
            if not unmarked:
                completed = self._transactions[transactional_id].completed(now_ms=builder.now_ms)
                self._write(transactional_id, completed, builder)

    def _expire(self, builder: DecisionBuilder) -> bool:
        """Deletes ids that nobody has used for long; returns whether it found all of them."""
        oldest_ms = builder.now_ms - self._settings.id_expiration_ms
        count = 0
        for transactional_id, transaction in self._transactions.items():
            if transaction.may_expire and transaction.updated_ms <= oldest_ms:
                if count == _EXPIRED_MAX:
                    return False
                count += 1
                builder.write(TransactionLogKey(transactional_id=transactional_id), None)
                builder.note(f"transactional id {transactional_id}: expired", is_routine=True)
        return True

    # Administration

    def list_transactions(
        self,
        *,
        states: Collection[State] | None = None,
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        matches: Callable[[str], bool] | None = None,
        now_ms: int,
    ) -> list[list_transactions.TransactionState]:
        """Returns the ids that all filters let through. `states` is None for all states."""
        return [
            list_transactions.TransactionState(
                transactional_id=transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.title,
            )
            for transactional_id, found in self._transactions.items()
            if (states is None or found.state in states)
            and (not producer_ids or found.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - found.started_ms > duration_ms)
            and (matches is None or matches(transactional_id))
        ]

    def states(self) -> list[State]:
        """Returns the state of each transactional id."""
        return [transaction.state for transaction in self._transactions.values()]

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState:
        if not transactional_id:
            return describe_transactions.TransactionState(error_code=ErrorCode.INVALID_REQUEST)
        found = self._transactions.get(transactional_id)
        if found is None:
            return describe_transactions.TransactionState(
                transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            )
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(self._unmarked.get(transactional_id, found.partitions)):
            topics.setdefault(topic, []).append(index)
        return describe_transactions.TransactionState(
            transactional_id=transactional_id,
            transaction_state=found.state.title,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                describe_transactions.TopicData(topic=topic, partitions=indexes)
                for topic, indexes in topics.items()
            ],
        )

    # The log

    def apply(self, record: Record, *, offset: int, producer_id: int = NO_PRODUCER) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        self._ongoing.pop(transactional_id, None)
        self._unmarked.pop(transactional_id, None)
        if value is None:
            self._transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            self._markers.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction = Transaction.of(value)
        self._transactions[transactional_id] = transaction
        if transaction.state is State.ONGOING:
            self._ongoing[transactional_id] = None
        if transaction.is_preparing:
            self._unmarked[transactional_id] = set(transaction.partitions)
        else:
            self._markers.pop(transactional_id, None)

    def apply_marker(self, producer_id: int, *, commits: bool) -> None:
        """Nobody writes to this log in a transaction, but anybody who may write markers can have
        one written here. It ends nothing."""

    def durable_state(self) -> object:
        """Returns what must be the same in a shard that replays the log."""
        return self._transactions

    def _write(self, transactional_id: str, after: Transaction, builder: DecisionBuilder) -> None:
        key = TransactionLogKey(transactional_id=transactional_id)
        builder.write(key, after.value(self._settings.transaction_version))

    def _last_epoch(self, transactional_id: str) -> int:
        known = self._last_epochs.get(transactional_id)
        return self._transactions[transactional_id].last_epoch if known is None else known

    def _set_last_epoch(self, transactional_id: str, epoch: int) -> None:
        if epoch == NO_PRODUCER_EPOCH:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = epoch

    # Life

    def on_loaded(self, now: float) -> Decision:
        """Sends the markers of all transactions whose outcome is decided."""
        self._expiration_check = now + self._settings.expiration_check_interval_ms / 1000
        if self._ongoing:
            self._expect_timeout(now)
        effects = []
        for transactional_id, unmarked in self._unmarked.items():
            if unmarked:
                transaction = self._transactions[transactional_id]
                effects.append(self._send_markers(transactional_id, transaction))
            else:
                self._timeout_check = now
        return Decision(effects=effects)

    def on_unloaded(self) -> Decision:
        return NOTHING

    def on_settings(self, settings: TransactionSettings) -> None:
        """Takes new settings, as after a change of `transaction.version`. What was written stays as
        it is; what is written from now on follows them."""
        self._settings = settings


def _known(code: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """Returns the code as the client knows it."""
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], code: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=code(TopicPartition(topic.name, index)),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
