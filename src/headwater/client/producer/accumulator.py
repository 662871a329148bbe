"""The producer's batches by partition: open, queued, in flight.

A machine: it tells which open batches are due, which batch a partition may send next, and when to
look again. A partition's batches leave in order; one that failed returns to its old place.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from math import inf

from headwater._core import Outgoing
from headwater.client.errors import ClientError
from headwater.client.producer.sequences import Identity, PartitionSequence, sequence_after
from headwater.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition

# Batches that are due within this part of the linger go together, in one request instead of many.
_LINGER_SLACK = 0.2
_LINGER_SLACK_MAX_SECONDS = 0.001


class Batch:
    """A batch from the moment it is closed until it has its outcome.

    No slots and no dataclass: one is made for each request of a single record, so defaults that
    most batches keep are class attributes.
    """

    serial = 0  # its number among all batches
    attempts = 0
    not_before = 0.0  # the earliest time of a retry
    is_in_flight = False
    settled = False
    may_be_written = False  # an attempt has ended, and nobody knows how
    error: ClientError | None = None  # of the last attempt
    producer_id = NO_PRODUCER_ID
    epoch = NO_PRODUCER_EPOCH
    base_sequence = NO_SEQUENCE
    span = 1.0  # of a whole batch; its parts share it

    def __init__(
        self,
        outgoing: Outgoing,
        tp: TopicPartition,
        created: float,
        deadline: float,
        number: float,
    ) -> None:
        self.outgoing = outgoing
        self.tp = tp
        self.count = outgoing.count
        self.created = created  # when its first record was added
        self.deadline = deadline  # after which it is given up
        self.number = number  # its place among the batches of its partition

    @property
    def next_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.count)

    def __repr__(self) -> str:
        return f"<Batch {self.number:g} of {self.tp}: {self.count} records>"


class PartitionQueue:
    """The batches of one partition."""

    __slots__ = ("in_flight", "is_urgent", "numbers", "opened_at", "queued", "sequence", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.queued: list[Batch] = []  # closed and not in flight, by number; short
        self.in_flight: list[Batch] = []
        self.opened_at: float | None = None  # when the open batch got its first record
        self.is_urgent = False  # a record of the open batch is awaited
        self.numbers = 0
        self.sequence = PartitionSequence()

    @property
    def is_idle(self) -> bool:
        return not self.queued and not self.in_flight

    @property
    def depth(self) -> int:
        """The number of batches that wait, including the open one."""
        return len(self.queued) + (self.opened_at is not None)


class Accumulator:
    """The queues of all partitions. `identity` is None without idempotence. `may_send` is for
    transactions, which also take the place of `restart`: a gap ends them."""

    def __init__(
        self,
        *,
        linger: float,
        delivery_timeout: float,
        identity: Identity | None,
        sends_awaited_at_once: bool,
        may_send: Callable[[TopicPartition], bool] | None = None,
    ) -> None:
        self.identity = identity
        self._may_send = may_send  # of the transaction, if there are any
        self.waiting: dict[
            TopicPartition, PartitionQueue
        ] = {}  # with closed batches; the next one first
        self.restarting: dict[TopicPartition, PartitionQueue] = {}  # they need another epoch
        self._linger = linger
        self._slack = min(linger * _LINGER_SLACK, _LINGER_SLACK_MAX_SECONDS)
        self._delivery_timeout = delivery_timeout
        # Whether an awaited record is sent at once if its partition has nothing queued or in
        # flight.
        self.sends_awaited_at_once = sends_awaited_at_once
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._open: dict[
            TopicPartition, PartitionQueue
        ] = {}  # by age, since all linger equally long
        self._urgent: dict[TopicPartition, PartitionQueue] = {}
        self._expiry = inf  # no batch expires before
        self._is_spoilt = False  # some sequence of a transaction has a gap

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        queue = self.find((topic, partition))
        if queue is None:
            tp = TopicPartition(topic, partition)
            queue = self._queues[tp] = PartitionQueue(tp)
        return queue

    def find(self, tp: tuple[str, int]) -> PartitionQueue | None:
        return self._queues.get(tp)  # type: ignore[call-overload, no-any-return]  # equal, cheaper

    # Open batches

    def opened(self, queue: PartitionQueue, now: float) -> None:
        queue.opened_at = now
        self._open[queue.tp] = queue

    def urge(self, queue: PartitionQueue) -> bool:
        """Marks the open batch as awaited; returns whether to send it now."""
        if not self.sends_awaited_at_once or queue.opened_at is None:
            return False
        queue.is_urgent = True
        self._urgent[queue.tp] = queue
        return queue.is_idle

    def due(self, now: float) -> list[PartitionQueue]:
        """Returns the partitions whose open batch is to be closed now: it has lingered, or one of
        its records is awaited and the batches before it are done (so that the next batch fills
        while one is in flight)."""
        due = [queue for queue in self._urgent.values() if queue.is_idle] if self._urgent else []
        limit = now - self._linger + self._slack
        for queue in self._open.values():
            if queue.opened_at is None or queue.opened_at > limit:
                break
            if not (queue.is_urgent and queue.is_idle):
                due.append(queue)
        return due

    @property
    def is_still(self) -> bool:
        """Whether no batch is open or waits to be sent."""
        return not (self._open or self.waiting or self.restarting)

    def all_open(self) -> list[PartitionQueue]:
        return list(self._open.values())

    def clear_open(self, queue: PartitionQueue) -> None:
        """Notes that no batch is open."""
        queue.opened_at = None
        self._open.pop(queue.tp, None)
        if queue.is_urgent:
            queue.is_urgent = False
            del self._urgent[queue.tp]

    def closed(self, queue: PartitionQueue, outgoing: Outgoing, now: float) -> Batch:
        """Queues the batch that was open."""
        created = queue.opened_at if queue.opened_at is not None else now
        self.clear_open(queue)
        return self.enqueue(queue, outgoing, created)

    def enqueue(self, queue: PartitionQueue, outgoing: Outgoing, created: float) -> Batch:
        """Queues a batch, whatever is open."""
        deadline = created + self._delivery_timeout
        batch = Batch(outgoing, queue.tp, created, deadline, queue.numbers)
        queue.numbers += 1
        queue.queued.append(batch)
        self.waiting[queue.tp] = queue
        if deadline < self._expiry:
            self._expiry = deadline
        return batch

    # Sending

    def sendable(self, queue: PartitionQueue, now: float) -> Batch | None:
        """Returns the batch that the partition may send now."""
        if not queue.queued:
            return None
        batch = queue.queued[0]
        if batch.not_before > now:
            return None
        if self.identity is not None and not queue.sequence.may_send(batch, self.identity):
            return None
        if self._may_send is not None and not self._may_send(queue.tp):
            return None
        return batch

    def may_begin(self, queue: PartitionQueue) -> bool:
        """Whether a batch that is not numbered yet may be sent by itself."""
        if self._may_send is not None and not self._may_send(queue.tp):
            return False
        return self.identity is None or queue.sequence.may_begin(self.identity)

    def sent(self, queue: PartitionQueue, batch: Batch) -> None:
        """Moves a batch from the queue to the wire; the partition goes to the end of the line."""
        assert queue.queued[0] is batch
        del queue.queued[0]
        queue.in_flight.append(batch)
        batch.is_in_flight = True
        batch.attempts += 1
        del self.waiting[queue.tp]
        if queue.queued:
            self.waiting[queue.tp] = queue

    def sent_single(self, queue: PartitionQueue, outgoing: Outgoing, now: float) -> Batch:
        """Combines `closed` and `sent` for an idle partition whose batch was opened just now."""
        assert queue.is_idle
        if queue.opened_at is not None:
            self.clear_open(queue)  # another thread has taken what was open before
        deadline = now + self._delivery_timeout
        batch = Batch(outgoing, queue.tp, now, deadline, queue.numbers)
        queue.numbers += 1
        queue.in_flight.append(batch)
        batch.is_in_flight = True
        batch.attempts = 1
        if deadline < self._expiry:
            self._expiry = deadline
        return batch

    # Batches whose request has ended

    def landed(self, queue: PartitionQueue, batch: Batch) -> None:
        """Notes that a batch is no longer in flight."""
        assert batch.is_in_flight
        batch.is_in_flight = False
        queue.in_flight.remove(batch)

    def requeue(self, queue: PartitionQueue, batch: Batch, not_before: float) -> None:
        """Queues a batch again, before those that came after it."""
        batch.not_before = not_before
        insort(queue.queued, batch, key=_number)
        self.waiting[queue.tp] = queue
        self._expiry = min(self._expiry, batch.deadline)

    def split(self, queue: PartitionQueue, batch: Batch, outgoing: list[Outgoing]) -> list[Batch]:
        """Queues the parts of a batch in its place."""
        span = batch.span / len(outgoing)
        parts = [
            Batch(each, batch.tp, batch.created, batch.deadline, batch.number + index * span)
            for index, each in enumerate(outgoing)
        ]
        if self.identity is not None:
            queue.sequence.split(batch, parts)
        for part in parts:
            part.span = span
            part.attempts = batch.attempts
            part.may_be_written = batch.may_be_written
            self.requeue(queue, part, 0.0)
        return parts

    def dropped(self, queue: PartitionQueue, batch: Batch) -> None:
        """Removes a queued batch that is given up."""
        queue.queued.remove(batch)
        if not queue.queued:
            self.waiting.pop(queue.tp, None)

    # The next epoch

    def restart(self) -> list[Batch]:
        """Restarts the sequences of partitions with a gap under the next epoch, once none of their
        batches is in flight; returns the batches with new sequences."""
        identity = self.identity
        assert identity is not None
        ready = [queue for queue in self.restarting.values() if queue.sequence.may_restart]
        if not ready or not identity.is_known or not identity.bump():
            return []  # without an id they wait for a new one
        changed = []
        for queue in ready:
            del self.restarting[queue.tp]
            changed += queue.sequence.restart(identity)
        return changed

    def granted(self, producer_id: int, epoch: int) -> list[Batch]:
        """Takes a new producer id; partitions that needed an epoch restart under it."""
        identity = self.identity
        assert identity is not None
        identity.granted(producer_id, epoch)
        changed = []
        for queue in list(self.restarting.values()):
            if queue.sequence.may_restart:
                del self.restarting[queue.tp]
                changed += queue.sequence.restart(identity)
        return changed

    def renewed(self, producer_id: int, epoch: int) -> None:
        """Takes the id and epoch of the next transaction, when nothing is sent or queued."""
        assert self.identity is not None
        assert not self.waiting
        self.identity.granted(producer_id, epoch)
        if self._is_spoilt:
            self._is_spoilt = False
            for queue in self._queues.values():
                queue.sequence = PartitionSequence()

    def note_gap(self, queue: PartitionQueue) -> None:
        """Notes whether the partition needs another epoch; called after each outcome."""
        if self._may_send is not None:
            sequence = queue.sequence
            self._is_spoilt |= sequence.gap is not None or sequence.unresolved
        elif queue.sequence.gap is not None:
            self.restarting[queue.tp] = queue

    # Time

    def expired(self, now: float) -> list[tuple[PartitionQueue, Batch]]:
        """Returns the batches whose deadline has passed, in order; some may be in flight."""
        if now < self._expiry:
            return []
        over = []
        self._expiry = inf
        for queue in self._queues.values():
            for batch in (*queue.in_flight, *queue.queued):
                if batch.settled:
                    continue
                if batch.deadline <= now:
                    over.append((queue, batch))
                else:
                    self._expiry = min(self._expiry, batch.deadline)
        return over

    def next_deadline(self, now: float) -> float:
        """Returns when to look again if nothing else happens; infinity if there is no reason to."""
        deadline = self._expiry
        for queue in self._open.values():
            assert queue.opened_at is not None
            deadline = min(deadline, queue.opened_at + self._linger)
            break
        for queue in self.waiting.values():
            if now < queue.queued[0].not_before < deadline:
                deadline = queue.queued[0].not_before
        return deadline

    def activity(self) -> dict[str, int | None]:
        """Returns how many batches each topic has had; None while one is open or has no outcome."""
        counts: dict[str, int | None] = {}
        for queue in self._queues.values():
            topic = queue.tp.topic
            before = counts.get(topic, 0)
            is_busy = not queue.is_idle or queue.opened_at is not None
            counts[topic] = None if is_busy or before is None else before + queue.numbers
        return counts

    def unsettled(self) -> Iterator[tuple[PartitionQueue, Batch]]:
        for queue in self._queues.values():
            for batch in (*queue.in_flight, *queue.queued):
                if not batch.settled:
                    yield queue, batch


def _number(batch: Batch) -> float:
    return batch.number
