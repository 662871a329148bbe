"""Idempotence: the sequence numbers of batches, and recovery when the broker finds a gap.

A machine. The producer has one id and epoch; each partition counts its own records. A batch that
was sent keeps its sequence whatever happens to it, so that the broker can tell a retry from a new
batch. Where a gap cannot be closed, because a batch before it was refused or given up, the producer
takes the next epoch and the partition counts from zero again (KIP-360).

Sequences are rewritten only when no batch of the partition is in flight and those before the gap
have their outcome: what may have been written under an old sequence must not be sent under a new
one. Batches behind the gap cannot have been written, unless there is none: a broker that was
restarted remembers only the last batch, and takes earlier ones that come again for out of order. A
batch of which that may be true is given up (`is_ambiguous`).
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from headwater.client.producer.accumulator import Batch

EPOCH_MAX = 2**15 - 1
SEQUENCE_MAX = 2**31 - 1


def sequence_after(sequence: int, count: int) -> int:
    """Returns the sequence that follows `count` records from `sequence` on; it wraps to zero."""
    return (sequence + count) & SEQUENCE_MAX


@dataclass(slots=True)
class Identity:
    """The producer's id and epoch; none until a broker has granted one."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def granted(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch

    def bump(self) -> bool:
        """Takes the next epoch. When they are used up: returns False and drops the id."""
        assert self.is_known
        if self.epoch == EPOCH_MAX:
            self.producer_id = NO_PRODUCER_ID
            self.epoch = NO_PRODUCER_EPOCH
            return False
        self.epoch += 1
        return True


@dataclass(slots=True)
class PartitionSequence:
    """The sequence numbers of one partition."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    next: int = 0
    expected: int = 0  # the one after the last acknowledged record
    has_begun: bool = False  # one was acknowledged in this epoch
    # Sent at least once and without an outcome, by number: in flight or waiting for a retry.
    sent: list[Batch] = field(default_factory=list)
    unresolved: bool = False  # a batch was given up and may have been written
    gap: float | None = None  # from the batch of this number on a new epoch is needed

    @property
    def needs_epoch(self) -> bool:
        return self.gap is not None

    def may_send(self, batch: Batch, identity: Identity) -> bool:
        if self.gap is not None and batch.number >= self.gap:
            return False
        if batch.base_sequence != NO_SEQUENCE:
            # A second attempt: one at a time and in order, or the broker sees a gap.
            return self.sent[0] is batch
        if identity.producer_id == NO_PRODUCER_ID or self.unresolved:
            return False
        # Batches of the old epoch come first: in a new one the broker would refuse them. And the
        # first batch of an epoch goes alone. To a producer that it does not know a broker lets
        # any sequence begin, so if the first one failed, the second would be written before it.
        return not self.sent or (
            self.has_begun
            and self.epoch == identity.epoch
            and self.producer_id == identity.producer_id
        )

    def may_begin(self, identity: Identity) -> bool:
        """Whether a batch that is not numbered yet may be sent by itself."""
        return not (self.sent or self.unresolved or self.gap is not None) and identity.is_known

    def assign(self, batch: Batch, identity: Identity) -> None:
        """Gives the batch its sequence when it is sent for the first time."""
        assert batch.base_sequence == NO_SEQUENCE
        if self.epoch != identity.epoch or self.producer_id != identity.producer_id:
            assert not self.sent
            self._restart(identity)
        self._number(batch)
        self.sent.append(batch)

    def _restart(self, identity: Identity) -> None:
        self.producer_id = identity.producer_id
        self.epoch = identity.epoch
        self.next = 0
        self.expected = 0
        self.has_begun = False
        self.unresolved = False
        self.gap = None

    def _number(self, batch: Batch) -> None:
        batch.producer_id = self.producer_id
        batch.epoch = self.epoch
        batch.base_sequence = self.next
        self.next = sequence_after(self.next, batch.count)

    # Outcomes of a batch

    def acknowledged(self, batch: Batch) -> None:
        if batch.base_sequence == NO_SEQUENCE:
            return
        # The response may come after the batch was given up; it still says that there is no gap.
        if batch.epoch == self.epoch and batch.producer_id == self.producer_id:
            self.expected = batch.next_sequence
            self.has_begun = True
        self._remove(batch)

    def refused(self, batch: Batch) -> None:
        """Notes a batch that was not written and never will be: a gap begins there."""
        # If it was given up before, that has had its effect, maybe another epoch.
        if batch in self.sent:
            self._found_gap(batch.number)
            self._remove(batch)

    def given_up(self, batch: Batch) -> None:
        """Notes a batch whose deadline has passed. The batches behind it will tell whether it was
        written."""
        if batch in self.sent:
            self.unresolved = True
            self._remove(batch)

    def _remove(self, batch: Batch) -> None:
        if self.sent and self.sent[0] is batch:
            del self.sent[0]
        elif batch in self.sent:
            self.sent.remove(batch)
        if self.unresolved and not self.sent:
            self.unresolved = False
            if self.expected != self.next:
                self._found_gap(batch.number)

    def _found_gap(self, number: float) -> None:
        self.gap = number if self.gap is None else min(self.gap, number)

    def out_of_order(self, batch: Batch) -> None:
        """Handles a broker that misses something before this batch."""
        if self._is_next(batch):
            # The broker has forgotten us, or what was given up before was not written.
            self._found_gap(batch.number)

    def is_ambiguous(self, batch: Batch) -> bool:
        """Returns whether a batch that is out of order for the broker may be in its log all the
        same."""
        return batch.may_be_written and self._is_next(batch)

    def _is_next(self, batch: Batch) -> bool:
        # If it is not, the batch before it failed and is sent again first.
        return batch in self.sent and (self.unresolved or batch.base_sequence == self.expected)

    def split(self, batch: Batch, parts: list[Batch]) -> None:
        """Gives the parts the place and the sequences of the whole."""
        if batch.base_sequence == NO_SEQUENCE:
            return
        sequence = batch.base_sequence
        self.sent.remove(batch)
        for part in parts:
            part.producer_id, part.epoch = batch.producer_id, batch.epoch
            part.base_sequence = sequence
            sequence = sequence_after(sequence, part.count)
            insort(self.sent, part, key=lambda each: each.number)

    # The next epoch

    @property
    def may_restart(self) -> bool:
        gap = self.gap
        return gap is not None and not any(
            batch.is_in_flight or batch.number < gap for batch in self.sent
        )

    def restart(self, identity: Identity) -> list[Batch]:
        """Counts from zero under a new identity; returns the batches with new sequences."""
        assert identity.is_known
        self._restart(identity)
        for batch in self.sent:
            self._number(batch)
        return self.sent
