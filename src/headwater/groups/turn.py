"""One call of a shard's machine while it is being decided."""

from __future__ import annotations

from headwater.groups.decision import Decision, Record, Token
from headwater.protocol.schema import Message

# A client's own words; it is asked for no more (KIP-800).
_REASON_LENGTH_MAX = 255


def reason_given(reason: str | None) -> str:
    """A reason in parentheses as it may stand in a line of the log, if one was given."""
    return f" ({reason[:_REASON_LENGTH_MAX]!r})" if reason else ""


class Turn:
    """The time of the call, and what has been decided so far."""

    __slots__ = ("is_atomic", "notes", "now", "now_ms", "records", "replies")

    def __init__(self, now: float, now_ms: int) -> None:
        self.now = now
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.replies: list[tuple[Token, Message]] = []
        self.notes: list[str] = []
        self.is_atomic = True

    def write(self, key: Message, value: Message | None) -> None:
        self.records.append(Record(key, value))

    def reply(self, token: Token, message: Message) -> None:
        self.replies.append((token, message))

    def add(self, decision: Decision) -> None:
        """What a part of the shard has decided by itself."""
        self.records.extend(decision.records)
        self.replies.extend(decision.replies)
        self.notes.extend(decision.notes)

    def note(self, what: str) -> None:
        """For the log of the node: one line, and only for what is worth one."""
        self.notes.append(what)

    def decision(self) -> Decision:
        return Decision(self.records, self.replies, self.notes, self.is_atomic)
