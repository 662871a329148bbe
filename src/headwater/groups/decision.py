"""Decisions of a coordinator's machine: records to write, and replies to send after that.

The driver appends `Decision.records` as one batch, applies each of them to the machine, and sends
`Decision.replies` when that batch, and all that was decided before, is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from headwater.protocol.schema import Message

# The driver's name for a request that waits for its reply.
Token: TypeAlias = int

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
    """Records to write, and replies to send once they are committed."""

    records: Sequence[Record] = ()
    replies: Sequence[tuple[Token, Message]] = ()
    notes: Sequence[Note] = ()
    # Whether the records are only valid together. If not, a long list may be split into several
    # batches, of which a crash may leave only the first.
    is_atomic: bool = True
    # The transaction that the records are part of: they count when its marker commits it.
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER


NOTHING = Decision()


def reply(token: Token, message: Message) -> Decision:
    """Returns a decision that consists of one reply."""
    return Decision((), ((token, message),))


class DecisionBuilder:
    """A decision in the making, with the time of the call it is made for."""

    __slots__ = (
        "is_atomic",
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
        self.is_atomic = True
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

    def note(self, text: str, *, is_routine: bool = False) -> None:
        """Adds a line for the node's log, at level debug if it is routine."""
        self.notes.append(Note(text, is_routine))

    def decision(self) -> Decision:
        return Decision(
            self.records,
            self.replies,
            self.notes,
            self.is_atomic,
            self.producer_id,
            self.producer_epoch,
        )


# Clients are asked for no more (KIP-800).
_REASON_LENGTH_MAX = 255


def reason_given(reason: str | None) -> str:
    """Returns the reason that a client gave, in parentheses, for a line of the node's log."""
    return f" ({reason[:_REASON_LENGTH_MAX]!r})" if reason else ""


def removed(group_id: str, member_ids: Sequence[str], why: str) -> str:
    """Returns the line for the node's log when the coordinator removes members."""
    others = f" and {len(member_ids) - 1} more" if len(member_ids) > 1 else ""
    return f"group {group_id}: removed {member_ids[0]}{others}: {why}"


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """The sender of a request: its client id, and its host as groups show it (`/127.0.0.1`)."""

    client_id: str
    host: str


class TopicsView(Protocol):
    """The cluster's topics, as far as groups need them."""

    def partitions(self, name: str) -> int | None: ...

    def id(self, name: str) -> bytes | None: ...

    def name(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]: ...

    def racks(self, name: str) -> Sequence[frozenset[str]]: ...
