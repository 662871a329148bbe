"""Decisions of a coordinator's machine: records to write, and what follows their commit.

The driver appends `Decision.records` as one batch and applies each of them to the machine. When
that batch, and all that was decided before, is committed, it carries out `Decision.effects` and
sends `Decision.replies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headwater.protocol.schema import Message

# The driver's name for a request that waits for its reply.
Token: TypeAlias = int
# Something to do outside of the machine. Each machine has its own classes of them, which the driver
# passes on unseen.
Effect: TypeAlias = object

NO_PRODUCER = -1


class Note(NamedTuple):
    """A line for the node's log; a routine one is written only at level debug."""

    text: str
    is_routine: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the shard's log; a value of None is a tombstone."""

    key: Message
    value: Message | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Records to write, and what follows once they are committed."""

    records: Sequence[Record] = ()
    replies: Sequence[tuple[Token, Message]] = ()
    notes: Sequence[Note] = ()
    # Whether the records are only valid together. If not, a long list may be split into several
    # batches, of which a crash may leave only the first.
    is_atomic: bool = True
    # Whether the machine is right if the records are not written: all that matters is in them. Then
    # those of a request that are too large for a batch are refused, and nothing is loaded again.
    may_be_refused: bool = False
    # The transaction that the records are part of: they count when its marker commits it.
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    # Carried out in this order, before the replies are sent; also if the commit came too late for
    # the replies. They are dropped if the machine is unloaded first: `on_loaded` decides anew what
    # is under way.
    effects: Sequence[Effect] = ()


NOTHING = Decision()


def reply(token: Token, message: Message) -> Decision:
    """Returns a decision that consists of one reply."""
    return Decision((), ((token, message),))


class DecisionBuilder:
    """A decision in the making, with the time of the call it is made for."""

    __slots__ = (
        "effects",
        "is_atomic",
        "may_be_refused",
        "notes",
        "now",
        "now_ms",
        "producer_epoch",
        "producer_id",
        "records",
        "replies",
    )

    def __init__(self, now: float, now_ms: int) -> None:
        self.now = now
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.replies: list[tuple[Token, Message]] = []
        self.notes: list[Note] = []
        self.effects: list[Effect] = []
        self.is_atomic = True
        self.may_be_refused = False
        self.producer_id = NO_PRODUCER
        self.producer_epoch = NO_PRODUCER

    def write(self, key: Message, value: Message | None) -> None:
        self.records.append(Record(key, value))

    def reply(self, token: Token, message: Message) -> None:
        self.replies.append((token, message))

    def add(self, decision: Decision) -> None:
        """Adds what a part of the shard has decided by itself."""
        self.records.extend(decision.records)
        self.replies.extend(decision.replies)
        self.notes.extend(decision.notes)
        self.effects.extend(decision.effects)

    def note(self, text: str, *, is_routine: bool = False) -> None:
        """Adds a line for the node's log, at level debug if it is routine."""
        self.notes.append(Note(text, is_routine))

    def decision(self) -> Decision:
        return Decision(
            self.records,
            self.replies,
            self.notes,
            self.is_atomic,
            self.may_be_refused,
            self.producer_id,
            self.producer_epoch,
            self.effects,
        )
