"""One call of a shard's machine while it is being decided."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.groups.decision import NO_PRODUCER, Decision, Note, Record, Token
from headwater.protocol.schema import Message

# A client's own words; it is asked for no more (KIP-800).
_REASON_LENGTH_MAX = 255


def reason_given(reason: str | None) -> str:
    """A reason in parentheses as it may stand in a line of the log, if one was given."""
    return f" ({reason[:_REASON_LENGTH_MAX]!r})" if reason else ""


def removed(group_id: str, member_ids: Sequence[str], why: str) -> str:
    """Returns the line for the node's log when the coordinator removes members."""
    others = f" and {len(member_ids) - 1} more" if len(member_ids) > 1 else ""
    return f"group {group_id}: removed {member_ids[0]}{others}: {why}"


class Turn:
    """The time of the call, and what has been decided so far."""

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
        """What a part of the shard has decided by itself."""
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
