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
    """Not a dataclass: one is made for each batch on the hot path, and most fields are soft."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "count",
        "created",
        "deadline",
        "epoch",
        "error",
        "not_before",
        "number",
        "on_wire",
        "outgoing",
        "producer_id",
        "serial",
        "settled",
        "span",
        "tp",
    )

    def __init__(
        self,
        outgoing: Outgoing,
        tp: TopicPartition,
        *,
        created: float,
        deadline: float,
        number: float,
        span: float = 1.0,
    ) -> None:
        self.outgoing = outgoing
        self.tp = tp
        self.count = outgoing.count
        self.created = created  # when its first record came
        self.deadline = deadline  # it is delivered by then, or given up
        # Its place among the batches of its partition. The parts of a split batch share `span`.
        self.number = number
        self.span = span
        self.serial = 0
        self.attempts = 0
        self.not_before = 0.0  # a retry waits until then
        self.on_wire = False
        self.settled = False
        self.error: ClientError | None = None  # why the last attempt failed
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.count)

    def __repr__(self) -> str:
        return f"<Batch {self.number:g} of {self.tp}: {self.count} records>"
