"""Acts on responses: acknowledges batches, retries, splits or fails them.

`classify_error` says what an error code means for a batch, `sequences` what it means for the
partition's sequence numbers, and `delivery` reports to those who wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from headwater._core import Intake
from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.errors import (
    BufferFull,
    ClientError,
    DeliveryTimedOut,
    Disconnected,
    FatalError,
    InvalidRecord,
    RetriableError,
    error_for,
)
from headwater.client.metadata import Broker
from headwater.client.producer.accumulator import Accumulator, Batch, PartitionQueue
from headwater.client.producer.buffer_memory import BufferWaiters
from headwater.client.producer.delivery import DeliveryReports, OnFailed
from headwater.client.producer.metrics import Metrics
from headwater.client.producer.requests import Payload, only_result, results_of
from headwater.client.requests.transactions import CONCURRENT_BACKOFF, judged
from headwater.errors import RETRIABLE, ErrorCode
from headwater.io import Address
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


class ErrorAction(Enum):
    DONE = auto()
    RETRY = auto()  # the same may succeed later
    RETRY_ELSEWHERE = auto()  # look for the leader, then send again
    GAP = auto()  # the broker misses a batch before it, or has forgotten the producer
    SPLIT = auto()
    FAIL = auto()


_ELSEWHERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
# After these a batch is certainly not in the log, if it was not before.
_UNWRITTEN = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_GAPS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


def classify_error(code: int, *, records: int, idempotent: bool) -> ErrorAction:
    """Returns what to do with a batch of so many records after this error code."""
    # A duplicate is stored already, though the broker no longer knows where.
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return ErrorAction.DONE
    if code == ErrorCode.MESSAGE_TOO_LARGE and records > 1:
        return ErrorAction.SPLIT
    if code in _GAPS and idempotent:
        return ErrorAction.GAP
    if code in _ELSEWHERE:
        return ErrorAction.RETRY_ELSEWHERE
    return ErrorAction.RETRY if code in RETRIABLE else ErrorAction.FAIL


class Outcomes:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        intake: Intake,
        accumulator: Accumulator,
        waiters: BufferWaiters,
        on_failed: OnFailed | None = None,
    ) -> None:
        """`on_failed` is for transactions, which no failure leaves unharmed."""
        self.metrics = Metrics()
        self.reports = DeliveryReports(on_failed)
        self._in_transactions = on_failed is not None
        self._config = config
        self._cluster = cluster
        self._intake = intake
        self._accumulator = accumulator
        self._waiters = waiters
        self._idempotent = accumulator.identity is not None
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    # Responses

    def on_failure(self, payloads: list[Payload], error: ClientError, now: float) -> None:
        """Handles a request that failed as a whole. The broker may still have executed it."""
        self._cluster.need_update()
        for queue, batch in payloads:
            if isinstance(error, RetriableError):
                self._retry(queue, batch, error, now)
            else:
                queue.sequence.given_up(batch)
                self._fail(queue, batch, error)

    def on_response(self, payloads: list[Payload], answer: ProduceResponse, now: float) -> None:
        if len(payloads) == 1:
            # The topic may have another id by now; the response is still about the one that was
            # sent.
            self._on_result(*payloads[0], only_result(answer), answer, now)
            return
        results = results_of(answer, self._cluster.metadata.names)
        for queue, batch in payloads:
            self._on_result(queue, batch, results.get(queue.tp), answer, now)

    def _on_result(
        self,
        queue: PartitionQueue,
        batch: Batch,
        result: PartitionProduceResponse | None,
        answer: ProduceResponse,
        now: float,
    ) -> None:
        if result is None:
            error = Disconnected(f"the broker's answer does not mention {queue.tp}")
            self._retry(queue, batch, error, now)
        elif result.error_code == 0:
            self.acknowledge(queue, batch, result.base_offset, result.log_append_time_ms)
        else:
            self._act_on_error(queue, batch, result, answer, now)

    def _act_on_error(
        self,
        queue: PartitionQueue,
        batch: Batch,
        result: PartitionProduceResponse,
        answer: ProduceResponse,
        now: float,
    ) -> None:
        code = result.error_code
        action = classify_error(code, records=batch.count, idempotent=self._idempotent)
        if action is ErrorAction.DONE:
            self.acknowledge(queue, batch, -1, -1)
            return
        error = error_for(code, f"{_counted(batch)} for {queue.tp}", result.error_message)
        match action:
            case ErrorAction.SPLIT:
                self._split(queue, batch)
            case ErrorAction.GAP if (
                code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                and not self._in_transactions  # which end with an abort
                and queue.sequence.is_ambiguous(batch)
            ):
                # Sent once more under another sequence, it might be in the log twice.
                what = (
                    f"{_counted(batch)} for {queue.tp}, which an earlier attempt may have written"
                )
                self.give_up(queue, batch, error_for(code, what, result.error_message))
            case ErrorAction.GAP:
                queue.sequence.out_of_order(batch)
                if self._in_transactions and queue.sequence.needs_epoch:
                    self._refuse(queue, batch, error)  # the next transaction has another epoch
                else:
                    self._retry(queue, batch, error, now)
            case ErrorAction.RETRY:
                self._retry(queue, batch, error, now)
            case ErrorAction.RETRY_ELSEWHERE:
                news = self._learn_leader(queue.tp, result, answer)
                if not news:
                    self._cluster.need_update(queue.tp.topic)
                self._retry(queue, batch, error, now, at_once=news)
            case _:
                self._refuse(queue, batch, error, _own_reasons(result, error))

    def _refuse(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: ClientError,
        own: dict[int, ClientError] | None = None,
    ) -> None:
        """Fails a batch that was not written and never will be."""
        queue.sequence.refused(batch)
        if self._in_transactions and isinstance(error, FatalError):
            error = judged(ApiKey.PRODUCE, error)  # some of them end only the transaction
        self._fail(queue, batch, error, own)

    def _learn_leader(
        self, tp: TopicPartition, result: PartitionProduceResponse, answer: ProduceResponse
    ) -> bool:
        """Applies a leader hint (KIP-951); returns whether it was new."""
        hint = result.current_leader
        if hint is None or hint.leader_id < 0:
            return False
        endpoint = next(
            (
                Broker(each.node_id, Address(each.host, each.port), each.rack)
                for each in answer.node_endpoints
                if each.node_id == hint.leader_id
            ),
            None,
        )
        return self._cluster.learn_leader(tp, hint.leader_id, hint.leader_epoch, endpoint)

    @contextmanager
    def measuring_wait(self) -> Iterator[None]:
        """Measures how long a record waits for room in the buffer."""
        metrics, began = self.metrics, self._cluster.now()
        metrics.waits_for_room += 1
        try:
            yield
        except BufferFull:
            metrics.refused_for_room += 1
            raise
        finally:
            metrics.waited += self._cluster.now() - began

    # Outcomes of a batch

    def acknowledge(
        self, queue: PartitionQueue, batch: Batch, offset: int, log_append_time: int
    ) -> None:
        if self._idempotent:
            queue.sequence.acknowledged(batch)
            self._accumulator.note_gap(queue)
        if batch.settled:  # too late: it was reported as timed out
            return
        metrics, outgoing = self.metrics, batch.outgoing
        metrics.records_sent += batch.count
        metrics.bytes_sent += outgoing.size
        metrics.bytes_plain += outgoing.cost
        self._release(batch)
        self.reports.acknowledged(batch, offset, log_append_time)

    def _release(self, batch: Batch) -> None:
        self._intake.release(batch.outgoing)
        if self._waiters:
            self._waiters.freed()

    def _retry(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: ClientError,
        now: float,
        *,
        at_once: bool = False,
    ) -> None:
        batch.error = error
        if error.code not in _UNWRITTEN:
            batch.may_be_written = True
        self._accumulator.note_gap(queue)
        if batch.settled:
            return
        if batch.deadline <= now:
            self.give_up(queue, batch, self.timed_out(batch))
        elif batch.attempts > self._config.retries:
            self.give_up(queue, batch, error)
        else:
            self.metrics.records_retried += batch.count
            random = self._cluster.host.random
            backoff = self._backoff
            if error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                backoff = CONCURRENT_BACKOFF
            wait = 0.0 if at_once else backoff.seconds(batch.attempts, random)
            self._accumulator.requeue(queue, batch, now + wait)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        if batch.settled:
            queue.sequence.refused(batch)
            self._accumulator.note_gap(queue)
            return
        self.metrics.batches_split += 1
        outgoing = batch.outgoing
        parts = self._accumulator.split(queue, batch, outgoing.split(outgoing.cost // 2))
        self._intake.release(outgoing)
        for part in parts:
            self._intake.charge(part.outgoing)
        self.reports.replaced(batch, parts)

    def _fail(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: ClientError,
        own: dict[int, ClientError] | None = None,
    ) -> None:
        self._accumulator.note_gap(queue)
        if batch.settled:
            return
        self.metrics.records_failed += batch.count
        self._release(batch)
        self.reports.failed(batch, error, own)

    def give_up(self, queue: PartitionQueue, batch: Batch, error: ClientError) -> None:
        """Fails a batch that is not sent again. If it was sent before, it may have been written."""
        queue.sequence.given_up(batch)
        self._fail(queue, batch, error)

    def timed_out(self, batch: Batch) -> ClientError:
        last = f"; the last try: {batch.error}" if batch.error is not None else ""
        tried = "was not acknowledged" if batch.attempts else "could not be sent"
        limit = self._config.delivery_timeout_ms
        return DeliveryTimedOut(
            f"{_counted(batch)} for {batch.tp} {tried} within delivery_timeout_ms={limit}{last}"
        )


def _counted(batch: Batch) -> str:
    what = "1 record" if batch.count == 1 else f"a batch of {batch.count} records"
    return f"{what} ({batch.outgoing.size} bytes)"


def _own_reasons(
    result: PartitionProduceResponse, error: ClientError
) -> dict[int, ClientError] | None:
    """Returns the errors of the records that the broker blames; the others only shared a batch."""
    if not result.record_errors:
        return None
    return {
        each.batch_index: InvalidRecord(
            f"{error}: {each.batch_index_error_message or 'this record is the reason'}",
            code=error.code,
        )
        for each in result.record_errors
    }
