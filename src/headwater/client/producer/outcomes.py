"""What becomes of batches: acknowledged, sent again, split, refused, given up.

A driver between the broker's answers and the machines: `verdicts` says what an answer means,
`sequences` what it means for the partition's count, `settling` tells those who wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater._core import Intake
from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.errors import (
    BufferFull,
    ClientError,
    DeliveryTimedOut,
    Disconnected,
    InvalidRecord,
    RetriableError,
    error_for,
)
from headwater.client.metadata import Broker
from headwater.client.producer.batches import Batch
from headwater.client.producer.lanes import Lane, Lanes
from headwater.client.producer.memory import Room
from headwater.client.producer.metrics import Metrics
from headwater.client.producer.requests import Payload, only_result, results_of
from headwater.client.producer.settling import Settling
from headwater.client.producer.verdicts import Verdict, judge
from headwater.io import Address
from headwater.model import TopicPartition
from headwater.protocol.messages.produce import PartitionProduceResponse, ProduceResponse


class Outcomes:
    def __init__(
        self, config: ProducerConfig, cluster: Cluster, intake: Intake, lanes: Lanes, room: Room
    ) -> None:
        self.metrics = Metrics()
        self.settling = Settling()
        self._config = config
        self._cluster = cluster
        self._intake = intake
        self._lanes = lanes
        self._room = room
        self._idempotent = lanes.identity is not None
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    # Answers

    def unanswered(self, payloads: list[Payload], error: ClientError, now: float) -> None:
        """The request failed as a whole. What was asked may have been done."""
        self._cluster.need_update()
        for lane, batch in payloads:
            if isinstance(error, RetriableError):
                self._retry(lane, batch, error, now)
            else:
                lane.sequence.given_up(batch)
                self._fail(lane, batch, error)

    def answered(self, payloads: list[Payload], answer: ProduceResponse, now: float) -> None:
        if len(payloads) == 1:
            # The topic may be known by another id by now; it is still the one that was sent.
            self._settle(*payloads[0], only_result(answer), answer, now)
            return
        results = results_of(answer, self._cluster.metadata.names)
        for lane, batch in payloads:
            self._settle(lane, batch, results.get(lane.tp), answer, now)

    def _settle(
        self,
        lane: Lane,
        batch: Batch,
        result: PartitionProduceResponse | None,
        answer: ProduceResponse,
        now: float,
    ) -> None:
        if result is None:
            error = Disconnected(f"the broker's answer says nothing of {lane.tp}")
            self._retry(lane, batch, error, now)
        elif result.error_code == 0:
            self.acknowledge(lane, batch, result.base_offset, result.log_append_time_ms)
        else:
            self._judge(lane, batch, result, answer, now)

    def _judge(
        self,
        lane: Lane,
        batch: Batch,
        result: PartitionProduceResponse,
        answer: ProduceResponse,
        now: float,
    ) -> None:
        code = result.error_code
        verdict = judge(code, records=batch.count, idempotent=self._idempotent)
        if verdict is Verdict.DONE:
            self.acknowledge(lane, batch, -1, -1)
            return
        error = error_for(code, f"{_counted(batch)} for {lane.tp}", result.error_message)
        match verdict:
            case Verdict.SPLIT:
                self._split(lane, batch)
            case Verdict.GAP:
                lane.sequence.out_of_order(batch)
                self._retry(lane, batch, error, now)
            case Verdict.AGAIN:
                self._retry(lane, batch, error, now)
            case Verdict.AGAIN_ELSEWHERE:
                news = self._learn_leader(lane.tp, result, answer)
                if not news:
                    self._cluster.need_update(lane.tp.topic)
                self._retry(lane, batch, error, now, at_once=news)
            case _:
                lane.sequence.refused(batch)
                self._fail(lane, batch, error, _own_reasons(result, error))

    def _learn_leader(
        self, tp: TopicPartition, result: PartitionProduceResponse, answer: ProduceResponse
    ) -> bool:
        """The broker may have said who leads now (KIP-951); whether that was news."""
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
    def waited_for_room(self) -> Iterator[None]:
        """Measures how long a record had to wait for room in the buffer."""
        metrics, began = self.metrics, self._cluster.now()
        metrics.waits_for_room += 1
        try:
            yield
        except BufferFull:
            metrics.refused_for_room += 1
            raise
        finally:
            metrics.waited += self._cluster.now() - began

    # What becomes of a batch

    def acknowledge(self, lane: Lane, batch: Batch, offset: int, log_append_time: int) -> None:
        if self._idempotent:
            lane.sequence.acknowledged(batch)
            self._lanes.note_gap(lane)
        if batch.settled:  # too late: it was reported as timed out
            return
        metrics, outgoing = self.metrics, batch.outgoing
        metrics.records_sent += batch.count
        metrics.bytes_sent += outgoing.size
        metrics.bytes_plain += outgoing.cost
        self._release(batch)
        self.settling.acknowledged(batch, offset, log_append_time)

    def _release(self, batch: Batch) -> None:
        self._intake.release(batch.outgoing)
        if self._room:
            self._room.freed()

    def _retry(
        self, lane: Lane, batch: Batch, error: ClientError, now: float, *, at_once: bool = False
    ) -> None:
        batch.error = error
        self._lanes.note_gap(lane)
        if batch.settled:
            return
        if batch.deadline <= now:
            self.give_up(lane, batch, self.timed_out(batch))
        elif batch.attempts > self._config.retries:
            self.give_up(lane, batch, error)
        else:
            self.metrics.records_retried += batch.count
            random = self._cluster.host.random
            wait = 0.0 if at_once else self._backoff.seconds(batch.attempts, random)
            self._lanes.requeue(lane, batch, now + wait)

    def _split(self, lane: Lane, batch: Batch) -> None:
        if batch.settled:
            lane.sequence.refused(batch)
            self._lanes.note_gap(lane)
            return
        self.metrics.batches_split += 1
        outgoing = batch.outgoing
        parts = self._lanes.split(lane, batch, outgoing.split(outgoing.cost // 2))
        self._intake.release(outgoing)
        for part in parts:
            self._intake.charge(part.outgoing)
        self.settling.replaced(batch, parts)

    def _fail(
        self,
        lane: Lane,
        batch: Batch,
        error: ClientError,
        own: dict[int, ClientError] | None = None,
    ) -> None:
        self._lanes.note_gap(lane)
        if batch.settled:
            return
        self.metrics.records_failed += batch.count
        self._release(batch)
        self.settling.failed(batch, error, own)

    def give_up(self, lane: Lane, batch: Batch, error: ClientError) -> None:
        """It is not sent any more; whether it was written is not known if it was sent before."""
        lane.sequence.given_up(batch)
        self._fail(lane, batch, error)

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
    """Which records the broker blames. The others only shared their batch."""
    if not result.record_errors:
        return None
    return {
        each.batch_index: InvalidRecord(
            f"{error}: {each.batch_index_error_message or 'this record is the reason'}",
            code=error.code,
        )
        for each in result.record_errors
    }
