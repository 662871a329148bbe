"""Asks coordinators whether partitions are part of a transaction, before its first batch (KIP-890).

A producer that still uses version 1 has told its coordinator which partitions it will write to, and
the leader verifies that. For one of version 2, the leader adds the partition itself. If this broker
coordinates the transaction, the answer usually comes at once. For each other broker there is one
request in flight, and the next one has what has gathered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from headwater.broker.broker_channel import BrokerChannel
from headwater.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock
from headwater.metadata import Image
from headwater.model import TopicPartition
from headwater.net.peer import PeerError
from headwater.net.peer.errors import UnsupportedVersion
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.storage import UNGUARDED, Verification

_BROKERS_VERSION = 5

Codes = Mapping[TopicPartition, ErrorCode]


class Coordinator(Protocol):
    """The transaction coordinator of this broker."""

    def partition_for(self, transactional_id: str) -> int | None: ...

    def add_partitions(
        self, transaction: AddPartitionsToTxnTransaction, *, version: int
    ) -> AddPartitionsToTxnResult | Awaitable[AddPartitionsToTxnResult]: ...


class Generation(NamedTuple):
    """The behaviour that a producer expects, by the version of its request."""

    adds: bool  # transaction version 2: its partitions are added by their leaders
    knows_abortable: bool  # TRANSACTION_ABORTABLE


def produce_generation(version: int) -> Generation:
    return Generation(version >= 12, version >= 11)


def offset_commit_generation(version: int) -> Generation:
    return Generation(version >= 5, version >= 4)


class Producer(NamedTuple):
    transactional_id: str
    id: int
    epoch: int


class Verified(NamedTuple):
    """The answer of the coordinator: an error for each partition that must not be written to, and
    the guards with which others may be."""

    codes: Codes
    guards: Mapping[TopicPartition, Verification]

    @property
    def is_concurrent(self) -> bool:
        """Whether the transaction before has not ended everywhere."""
        return ErrorCode.CONCURRENT_TRANSACTIONS in self.codes.values()


class TransactionVerification:
    def __init__(
        self,
        config: Callable[[], NodeConfig],
        image: Callable[[], Image],
        partitions: Partitions,
        coordinator: Coordinator,
        channel: BrokerChannel,
        clock: Clock,
    ) -> None:
        self._config = config
        self._image = image
        self._partitions = partitions
        self._coordinator = coordinator
        self._clock = clock
        self._outbox = _Outbox(channel)

    def verify(
        self, producer: Producer, sequences: Mapping[TopicPartition, int], generation: Generation
    ) -> Verified | Awaitable[Verified]:
        """Verifies that a producer may write to these partitions, by the first sequence that it
        sends to each."""
        if not (generation.adds or self._config().transaction_partition_verification_enable):
            return Verified({}, dict.fromkeys(sequences, UNGUARDED))
        now_ms = self._clock.wall_ms()
        codes: dict[TopicPartition, ErrorCode] = {}
        guards: dict[TopicPartition, Verification] = {}
        for tp, sequence in sequences.items():
            try:
                guard = self._partitions.get(tp.topic, tp.partition).begin_verification(
                    producer.id,
                    epoch=producer.epoch,
                    sequence=sequence,
                    bumps_epoch=generation.adds,
                    now_ms=now_ms,
                )
            except ApiError as refusal:
                codes[tp] = refusal.code
            else:
                if guard is not None:
                    guards[tp] = guard
        if not guards:
            return Verified(codes, guards)
        found = self._ask(_transaction(producer, guards, generation))
        if isinstance(found, Awaitable):
            return _verified_later(found, codes, guards, generation)
        return _verified(found, codes, guards, generation)

    def verify_patiently(
        self, producer: Producer, sequences: Mapping[TopicPartition, int], generation: Generation
    ) -> Verified | Awaitable[Verified]:
        """Like `verify`, but waits a little while the transaction before is being ended, where
        partitions are added: the producer would have to send all its records again."""
        verified = self.verify(producer, sequences, generation)
        if not generation.adds or (isinstance(verified, Verified) and not verified.is_concurrent):
            return verified
        return self._verify_again(verified, producer, sequences, generation)

    async def _verify_again(
        self,
        verified: Verified | Awaitable[Verified],
        producer: Producer,
        sequences: Mapping[TopicPartition, int],
        generation: Generation,
    ) -> Verified:
        config = self._config()
        limit_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)
        deadline = self._clock.monotonic() + limit_ms / 1000
        while True:
            if isinstance(verified, Awaitable):
                verified = await verified
            if not verified.is_concurrent or self._clock.monotonic() >= deadline:
                return verified
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)
            verified = self.verify(producer, sequences, generation)

    def _ask(self, transaction: AddPartitionsToTxnTransaction) -> Codes | Awaitable[Codes]:
        index = self._coordinator.partition_for(transaction.transactional_id)
        image = self._image()
        state = None if index is None else image.partition(TRANSACTIONS_TOPIC, index)
        leader = None if state is None else image.brokers.get(state.leader)
        if leader is None or leader.fenced:
            return _for_all(transaction, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader.id != self._config().node_id:
            return self._outbox.ask(leader.id, transaction)
        if not transaction.transactional_id:
            return _for_all(transaction, ErrorCode.INVALID_REQUEST)
        try:
            result = self._coordinator.add_partitions(transaction, version=_BROKERS_VERSION)
        except ApiError as refusal:
            return _for_all(transaction, refusal.code)
        if isinstance(result, Awaitable):
            return _codes_later(transaction, result)
        return _codes_of(result)


class _Question:
    """One transaction, whose coordinator is another broker."""

    __slots__ = ("answer", "transaction")

    def __init__(self, transaction: AddPartitionsToTxnTransaction) -> None:
        self.transaction = transaction
        self.answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()

    def resolve(self, codes: Codes) -> None:
        if not self.answer.done():
            self.answer.set_result(codes)

    def refuse(self, code: ErrorCode) -> None:
        self.resolve(_for_all(self.transaction, code))


class _Outbox:
    """Requests to other coordinators."""

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel
        # By broker and transactional id: of each, one waits at most.
        self._waiting: dict[int, dict[str, _Question]] = {}
        self._in_flight: set[int] = set()

    def ask(
        self, node_id: int, transaction: AddPartitionsToTxnTransaction
    ) -> asyncio.Future[Codes]:
        question = _Question(transaction)
        waiting = self._waiting.setdefault(node_id, {})
        before = waiting.get(transaction.transactional_id)
        if before is not None:
            epoch = before.transaction.producer_epoch
            if epoch > transaction.producer_epoch:
                question.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
                return question.answer
            # Of the same epoch, it is likely the same request again, whose sender has given up.
            is_fenced = epoch < transaction.producer_epoch
            before.refuse(
                ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            )
        waiting[transaction.transactional_id] = question
        self._flush(node_id)
        return question.answer

    def _flush(self, node_id: int) -> None:
        if node_id in self._in_flight:
            return
        questions = list(self._waiting.pop(node_id, {}).values())
        if questions:
            self._in_flight.add(node_id)
            request = AddPartitionsToTxnRequest(
                transactions=[question.transaction for question in questions]
            )
            self._channel.post(node_id, request, partial(self._on_response, node_id, questions))

    def _on_response(
        self,
        node_id: int,
        questions: Sequence[_Question],
        response: AddPartitionsToTxnResponse | None,
        error: PeerError | None,
    ) -> None:
        self._in_flight.discard(node_id)
        if isinstance(error, UnsupportedVersion):
            # As with Kafka: a coordinator from before verification cannot be asked.
            for question in questions:
                question.resolve({})
        elif response is None:
            for question in questions:
                question.refuse(ErrorCode.NETWORK_EXCEPTION)
        elif response.error_code:
            code = ErrorCode(response.error_code)
            for question in questions:
                question.refuse(_hidden(code))
        else:
            results = {
                result.transactional_id: result for result in response.results_by_transaction
            }
            for question in questions:
                result = results.get(question.transaction.transactional_id)
                if result is None:
                    question.refuse(ErrorCode.NETWORK_EXCEPTION)
                else:
                    question.resolve(_codes_of(result))
        self._flush(node_id)


def _transaction(
    producer: Producer, partitions: Iterable[TopicPartition], generation: Generation
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopic(name=name, partitions=[])
        topic.partitions.append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=not generation.adds,
        topics=list(topics.values()),
    )


def _codes_of(result: AddPartitionsToTxnResult) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode(
            partition.partition_error_code
        )
        for topic in result.topic_results
        for partition in topic.results_by_partition
        if partition.partition_error_code
    }


async def _codes_later(
    transaction: AddPartitionsToTxnTransaction, result: Awaitable[AddPartitionsToTxnResult]
) -> Codes:
    try:
        return _codes_of(await result)
    except ApiError as refusal:  # the coordinator has moved meanwhile
        return _for_all(transaction, refusal.code)


def _for_all(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> Codes:
    return {
        TopicPartition(topic.name, index): code
        for topic in transaction.topics
        for index in topic.partitions
    }


def _hidden(code: ErrorCode) -> ErrorCode:
    """Producers must not hear that a broker is not authorized."""
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    return code


async def _verified_later(
    found: Awaitable[Codes],
    codes: Codes,
    guards: Mapping[TopicPartition, Verification],
    generation: Generation,
) -> Verified:
    return _verified(await found, codes, guards, generation)


def _verified(
    found: Codes,
    codes: Codes,
    guards: Mapping[TopicPartition, Verification],
    generation: Generation,
) -> Verified:
    """Returns the coordinator's answer with the codes that producers know."""
    told = dict(codes)
    for tp, code in found.items():
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif code is ErrorCode.UNKNOWN_SERVER_ERROR:
            # Java's producer would send the batch once more as a new one (KAFKA-14034).
            code = ErrorCode.TRANSACTION_ABORTABLE
        if code is ErrorCode.TRANSACTION_ABORTABLE and not generation.knows_abortable:
            code = ErrorCode.INVALID_TXN_STATE
        told[tp] = code
    return Verified(told, guards)
