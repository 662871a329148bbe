"""An idempotent producer's machines against a partition behind a network that loses what it likes.

The log checks sequences as Kafka's does. Whatever happens, a record is in the log at most once and
in the order it was given, an acknowledged record is in it, and when the faults end all is settled.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.config import ProducerConfig
from headwater.client.errors import Disconnected
from headwater.client.producer.accumulator import Accumulator, Batch
from headwater.client.producer.buffer_memory import BufferWaiters
from headwater.client.producer.outcomes import Outcomes
from headwater.client.producer.sequences import Identity, sequence_after
from headwater.errors import ErrorCode
from headwater.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

IN_FLIGHT_MAX = 5
RECORDS_MAX = 6  # more make a batch too large


class Records:
    """A stand-in for a core batch: just the numbers of its records."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.count = len(numbers)
        self.cost = self.size = self.count
        self.awaited = 0
        self.waiters: list[Any] = []

    def split(self, size: int) -> list[Records]:
        return [Records(self.numbers[:size]), Records(self.numbers[size:])]


@dataclass
class Request:
    epoch: int
    sequence: int
    numbers: list[int]
    batch: Batch


@dataclass
class Log:
    """A partition's leader."""

    strict: bool  # as brokers before Kafka 2.5: an unknown producer must begin at zero
    records: list[int] = field(default_factory=list)
    epoch: int = -1
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def append(self, request: Request) -> int:
        if len(request.numbers) > RECORDS_MAX:
            return ErrorCode.MESSAGE_TOO_LARGE
        if any(number % 97 == 13 for number in request.numbers):
            return ErrorCode.INVALID_RECORD
        if request.epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        span = (request.sequence, sequence_after(request.sequence, len(request.numbers)))
        if request.epoch > self.epoch:
            if self.epoch >= 0 and request.sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if self.epoch < 0 and self.strict and request.sequence != 0:
                return ErrorCode.UNKNOWN_PRODUCER_ID
        elif span in self.recent:
            return ErrorCode.NONE
        elif self.recent and self.recent[-1][1] != request.sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if request.epoch != self.epoch:
            self.recent.clear()
        self.epoch = request.epoch
        self.recent.append(span)
        self.records += request.numbers
        return ErrorCode.NONE

    def forget(self) -> None:
        """The producer's state is gone, as when its records were deleted."""
        self.epoch = -1
        self.recent.clear()

    def restart(self) -> None:
        """The leader comes back with a snapshot, which has only the last batch of a producer."""
        while len(self.recent) > 1:
            self.recent.popleft()


class World:
    def __init__(self, seed: int, *, strict: bool) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.log = Log(strict)
        config = ProducerConfig.build("localhost:9092", delivery_timeout_ms=40_000)
        self.accumulator = Accumulator(
            linger=0.0, delivery_timeout=40.0, identity=Identity(7, 0), sends_awaited_at_once=True
        )
        cluster: Any = SimpleNamespace(
            need_update=lambda *_: None,
            host=SimpleNamespace(random=self.random),
            metadata=SimpleNamespace(names={}),
        )
        intake: Any = SimpleNamespace(release=lambda _: None, charge=lambda _: None)
        self.outcomes = Outcomes(config, cluster, intake, self.accumulator, BufferWaiters())
        self.queue = self.accumulator.queue("t", 0)
        self.requests: deque[Request] = deque()  # on their way to the broker
        self.answers: deque[tuple[Request, int]] = deque()
        self.given = 0
        self.acknowledged: list[int] = []
        self.faulty = True

    # What happens

    def give(self) -> None:
        count = self.random.randint(1, RECORDS_MAX + 3)
        numbers = list(range(self.given, self.given + count))
        self.given += count
        self.accumulator.opened(self.queue, self.now)
        outgoing: Any = Records(numbers)
        self.outcomes.reports.begin(self.accumulator.closed(self.queue, outgoing, self.now))

    def advance(self) -> None:
        for queue, batch in self.accumulator.expired(self.now):
            if not batch.is_in_flight:
                self.accumulator.dropped(queue, batch)
            self.outcomes.give_up(queue, batch, self.outcomes.timed_out(batch))
        self.accumulator.restart()
        identity = self.accumulator.identity
        assert identity is not None
        while len(self.requests) + len(self.answers) < IN_FLIGHT_MAX:
            ready = self.accumulator.sendable(self.queue, self.now)
            if ready is None:
                break
            if ready.base_sequence < 0:
                self.queue.sequence.assign(ready, identity)
            self.accumulator.sent(self.queue, ready)
            outgoing: Any = ready.outgoing
            self.requests.append(
                Request(ready.epoch, ready.base_sequence, list(outgoing.numbers), ready)
            )

    def serve(self) -> None:
        if not self.requests:
            return
        request = self.requests.popleft()
        trouble = self.random.random() if self.faulty else 1.0
        if trouble < 0.1:
            code: int = ErrorCode.NOT_ENOUGH_REPLICAS
        else:
            code = self.log.append(request)
            if trouble < 0.2 and not code:
                code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self.answers.append((request, code))

    def answer(self) -> None:
        if not self.answers:
            return
        request, code = self.answers.popleft()
        batch = request.batch
        self.accumulator.landed(self.queue, batch)
        if not code and not batch.settled:
            self.acknowledged += request.numbers
        result = PartitionProduceResponse(index=0, error_code=code, base_offset=0)
        response = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[result])])
        self.outcomes.on_response([(self.queue, batch)], response, self.now)

    def cut(self) -> None:
        """The connection ends: the broker may have got some of what was on its way."""
        for _ in range(self.random.randint(0, len(self.requests))):
            self.serve()
        lost = [request for request, _ in self.answers] + list(self.requests)
        self.answers.clear()
        self.requests.clear()
        for request in lost:
            self.accumulator.landed(self.queue, request.batch)
        for request in lost:
            self.outcomes.on_failure([(self.queue, request.batch)], Disconnected("cut"), self.now)

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.25:
            self.give()
        elif choice < 0.55:
            self.serve()
        elif choice < 0.85:
            self.answer()
        elif choice < 0.9:
            self.cut()
        elif choice < 0.92:
            self.now += self.random.choice([1.0, 15.0, 45.0])
        elif choice < 0.93 and self.log.strict and self.queue.is_idle:
            # With something undecided on its way no producer could tell what was written, and a
            # log that is not strict would then begin anywhere.
            self.log.forget()
        elif 0.94 < choice < 0.96:
            self.log.restart()
        self.now += 0.05
        self.advance()

    def heal(self) -> None:
        self.faulty = False
        for _ in range(3000):
            if not len(self.outcomes.reports):
                return
            self.advance()
            self.serve()
            self.answer()
            self.now += 0.05
        raise AssertionError(f"{len(self.outcomes.reports)} batches are never settled")


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.booleans())
def test_records_are_written_once_and_in_order_whatever_is_lost(seed: int, strict: bool) -> None:
    world = World(seed, strict=strict)
    for _ in range(300):
        world.step()
        assert world.log.records == sorted(set(world.log.records)), "twice, or out of order"
    world.heal()
    assert world.log.records == sorted(set(world.log.records)), "twice, or out of order"
    assert set(world.acknowledged) <= set(world.log.records), "acknowledged, and lost"
