"""The producer's batches by partition: which are open, which wait, which are on the wire.

A machine: it says which open batches are due, which batch a partition may send next, and when to
look again. A partition's batches leave in order; one that failed goes back to its old place.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from math import inf

from headwater._core import Outgoing
from headwater.client.producer.batches import Batch
from headwater.client.producer.sequences import Identity, PartitionSequence
from headwater.model import TopicPartition

# Batches that are due within this part of the linger go together: one request instead of many.
_LINGER_SLACK = 0.2
_LINGER_SLACK_MAX_SECONDS = 0.001


class Lane:
    """One partition."""

    __slots__ = ("is_urgent", "numbers", "opened_at", "queue", "sequence", "tp", "wire")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.queue: list[Batch] = []  # closed and not on the wire, by number; short
        self.wire: list[Batch] = []
        self.opened_at: float | None = None  # when the open batch got its first record
        self.is_urgent = False  # somebody awaits a record of the open batch
        self.numbers = 0
        self.sequence = PartitionSequence()

    @property
    def is_idle(self) -> bool:
        return not self.queue and not self.wire

    @property
    def queued(self) -> int:
        """Batches that wait, for the choice of the next partition."""
        return len(self.queue) + (self.opened_at is not None)


class Lanes:
    """All partitions. `identity` is None without idempotence."""

    def __init__(
        self, *, linger: float, delivery_timeout: float, identity: Identity | None, hurries: bool
    ) -> None:
        self.identity = identity
        self.waiting: dict[TopicPartition, Lane] = {}  # with closed batches; the next one first
        self.restarting: dict[TopicPartition, Lane] = {}  # they need another epoch
        self._linger = linger
        self._slack = min(linger * _LINGER_SLACK, _LINGER_SLACK_MAX_SECONDS)
        self._delivery_timeout = delivery_timeout
        # Whether an awaited record is sent at once if nothing of its partition is on its way.
        self.hurries = hurries
        self._lanes: dict[TopicPartition, Lane] = {}
        self._open: dict[TopicPartition, Lane] = {}  # by age, since all linger equally long
        self._urgent: dict[TopicPartition, Lane] = {}
        self._expiry = inf  # no batch expires before

    def lane(self, topic: str, partition: int) -> Lane:
        lane = self.find((topic, partition))
        if lane is None:
            tp = TopicPartition(topic, partition)
            lane = self._lanes[tp] = Lane(tp)
        return lane

    def find(self, tp: tuple[str, int]) -> Lane | None:
        return self._lanes.get(tp)  # type: ignore[call-overload, no-any-return]  # equal, cheaper

    # Open batches

    def opened(self, lane: Lane, now: float) -> None:
        lane.opened_at = now
        self._open[lane.tp] = lane

    def urge(self, lane: Lane) -> bool:
        """Somebody awaits a record of the open batch; whether it may go now."""
        if not self.hurries or lane.opened_at is None:
            return False
        lane.is_urgent = True
        self._urgent[lane.tp] = lane
        return lane.is_idle

    def due(self, now: float) -> list[Lane]:
        """Lanes whose open batch is to be closed now: it has lingered, or somebody awaits it and
        what was before it is done (so that the next batch gathers while one is on its way)."""
        due = [lane for lane in self._urgent.values() if lane.is_idle] if self._urgent else []
        limit = now - self._linger + self._slack
        for lane in self._open.values():
            if lane.opened_at is None or lane.opened_at > limit:
                break
            if not (lane.is_urgent and lane.is_idle):
                due.append(lane)
        return due

    @property
    def is_still(self) -> bool:
        """Whether nothing waits, to be sent or for more records."""
        return not (self._open or self.waiting or self.restarting)

    def all_open(self) -> list[Lane]:
        return list(self._open.values())

    def shut(self, lane: Lane) -> None:
        """No batch is open any more."""
        lane.opened_at = None
        self._open.pop(lane.tp, None)
        if lane.is_urgent:
            lane.is_urgent = False
            del self._urgent[lane.tp]

    def closed(self, lane: Lane, outgoing: Outgoing, now: float) -> Batch:
        """The open batch takes no more records and waits to be sent."""
        created = lane.opened_at if lane.opened_at is not None else now
        self.shut(lane)
        return self.queued(lane, outgoing, created)

    def queued(self, lane: Lane, outgoing: Outgoing, created: float) -> Batch:
        """A batch waits to be sent, whatever is open."""
        deadline = created + self._delivery_timeout
        batch = Batch(outgoing, lane.tp, created, deadline, lane.numbers)
        lane.numbers += 1
        lane.queue.append(batch)
        self.waiting[lane.tp] = lane
        if deadline < self._expiry:
            self._expiry = deadline
        return batch

    # Sending

    def sendable(self, lane: Lane, now: float) -> Batch | None:
        """The batch that the partition may send now."""
        if not lane.queue:
            return None
        batch = lane.queue[0]
        if batch.not_before > now:
            return None
        if self.identity is not None and not lane.sequence.may_send(batch, self.identity):
            return None
        return batch

    def sent(self, lane: Lane, batch: Batch) -> None:
        """The batch is on the wire; the partition goes to the end of the line."""
        assert lane.queue[0] is batch
        del lane.queue[0]
        lane.wire.append(batch)
        batch.on_wire = True
        batch.attempts += 1
        del self.waiting[lane.tp]
        if lane.queue:
            self.waiting[lane.tp] = lane

    def sent_alone(self, lane: Lane, outgoing: Outgoing, now: float) -> Batch:
        """`closed` and `sent` in one, for an idle partition whose batch was opened just now."""
        assert lane.is_idle
        if lane.opened_at is not None:
            self.shut(lane)  # another thread has taken what was open before
        deadline = now + self._delivery_timeout
        batch = Batch(outgoing, lane.tp, now, deadline, lane.numbers)
        lane.numbers += 1
        lane.wire.append(batch)
        batch.on_wire = True
        batch.attempts = 1
        if deadline < self._expiry:
            self._expiry = deadline
        return batch

    # What became of a batch that was on the wire

    def back(self, lane: Lane, batch: Batch) -> None:
        """It is no longer on the wire."""
        assert batch.on_wire
        batch.on_wire = False
        lane.wire.remove(batch)

    def requeue(self, lane: Lane, batch: Batch, not_before: float) -> None:
        """It is to be sent again, before those that came after it."""
        batch.not_before = not_before
        insort(lane.queue, batch, key=_number)
        self.waiting[lane.tp] = lane
        self._expiry = min(self._expiry, batch.deadline)

    def split(self, lane: Lane, batch: Batch, outgoing: list[Outgoing]) -> list[Batch]:
        """The parts wait in the place of the whole."""
        span = batch.span / len(outgoing)
        parts = [
            Batch(each, batch.tp, batch.created, batch.deadline, batch.number + index * span)
            for index, each in enumerate(outgoing)
        ]
        if self.identity is not None:
            lane.sequence.split(batch, parts)
        for part in parts:
            part.span = span
            part.attempts = batch.attempts
            self.requeue(lane, part, 0.0)
        return parts

    def dropped(self, lane: Lane, batch: Batch) -> None:
        """It waited, and is given up."""
        lane.queue.remove(batch)
        if not lane.queue:
            self.waiting.pop(lane.tp, None)

    # The next epoch

    def restart(self) -> list[Batch]:
        """Partitions with a gap count anew under the next epoch, once nothing of theirs is on the
        wire. The batches whose sequences have changed."""
        identity = self.identity
        assert identity is not None
        ready = [lane for lane in self.restarting.values() if lane.sequence.may_restart]
        if not ready or not identity.is_known or not identity.bump():
            return []  # without an id they wait for a new one
        changed = []
        for lane in ready:
            del self.restarting[lane.tp]
            changed += lane.sequence.restart(identity)
        return changed

    def granted(self, producer_id: int, epoch: int) -> list[Batch]:
        """The producer has an id. Partitions that needed an epoch count under this one."""
        identity = self.identity
        assert identity is not None
        identity.granted(producer_id, epoch)
        changed = []
        for lane in list(self.restarting.values()):
            if lane.sequence.may_restart:
                del self.restarting[lane.tp]
                changed += lane.sequence.restart(identity)
        return changed

    def note_gap(self, lane: Lane) -> None:
        """To be called when something has become of a batch: its partition may need an epoch."""
        if lane.sequence.gap is not None:
            self.restarting[lane.tp] = lane

    # Time

    def expired(self, now: float) -> list[tuple[Lane, Batch]]:
        """Batches whose time is over, in order; some may be on the wire."""
        if now < self._expiry:
            return []
        over = []
        self._expiry = inf
        for lane in self._lanes.values():
            for batch in (*lane.wire, *lane.queue):
                if batch.settled:
                    continue
                if batch.deadline <= now:
                    over.append((lane, batch))
                else:
                    self._expiry = min(self._expiry, batch.deadline)
        return over

    def next_deadline(self, now: float) -> float:
        """When to look again, if nothing happens before; infinity if nothing is to come."""
        deadline = self._expiry
        for lane in self._open.values():
            assert lane.opened_at is not None
            deadline = min(deadline, lane.opened_at + self._linger)
            break
        for lane in self.waiting.values():
            if now < lane.queue[0].not_before < deadline:
                deadline = lane.queue[0].not_before
        return deadline

    def activity(self) -> dict[str, int | None]:
        """How many batches each topic has had; None while one is open or not settled."""
        counts: dict[str, int | None] = {}
        for lane in self._lanes.values():
            topic = lane.tp.topic
            before = counts.get(topic, 0)
            is_busy = not lane.is_idle or lane.opened_at is not None
            counts[topic] = None if is_busy or before is None else before + lane.numbers
        return counts

    def unsettled(self) -> Iterator[tuple[Lane, Batch]]:
        for lane in self._lanes.values():
            for batch in (*lane.wire, *lane.queue):
                if not batch.settled:
                    yield lane, batch


def _number(batch: Batch) -> float:
    return batch.number
