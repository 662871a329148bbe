"""A batch of the producer from the moment it is closed until it is settled."""

from __future__ import annotations

from headwater._core import Outgoing
from headwater.client.errors import ClientError
from headwater.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition

SEQUENCE_MAX = 2**31 - 1


def sequence_after(sequence: int, count: int) -> int:
    """The sequence that follows `count` records from `sequence` on; it starts anew at zero."""
    return (sequence + count) & SEQUENCE_MAX


class Batch:
    """No slots and no dataclass: one is made for each request of a lone record, and what most
    batches never need stands in the class."""

    serial = 0  # its place among all batches
    attempts = 0
    not_before = 0.0  # a retry waits until then
    on_wire = False
    settled = False
    error: ClientError | None = None  # why the last attempt failed
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
        self.created = created  # when its first record came
        self.deadline = deadline  # it is delivered by then, or given up
        self.number = number  # its place among the batches of its partition

    @property
    def next_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.count)

    def __repr__(self) -> str:
        return f"<Batch {self.number:g} of {self.tp}: {self.count} records>"
