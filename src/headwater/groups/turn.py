"""One call of a shard's machine while it is being decided."""

from __future__ import annotations

from headwater.groups.decision import Decision, Record, Token
from headwater.protocol.schema import Message


class Turn:
    """The time of the call, and what has been decided so far."""

    __slots__ = ("now", "now_ms", "records", "replies")

    def __init__(self, now: float, now_ms: int) -> None:
        self.now = now
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.replies: list[tuple[Token, Message]] = []

    def write(self, key: Message, value: Message | None) -> None:
        self.records.append(Record(key, value))

    def reply(self, token: Token, message: Message) -> None:
        self.replies.append((token, message))

    def add(self, decision: Decision) -> None:
        """What a part of the shard has decided by itself."""
        self.records.extend(decision.records)
        self.replies.extend(decision.replies)

    def decision(self) -> Decision:
        return Decision(self.records, self.replies)
