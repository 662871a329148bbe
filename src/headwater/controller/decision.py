"""What a decision is: the facts to write, and what to answer once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from headwater.errors import ApiError, ErrorCode
from headwater.protocol import Message

# One batch has a bound. A request that needs more is refused, at the same count as in Kafka.
RECORDS_MAX = 10_000

R_co = TypeVar("R_co", covariant=True)


def check_bound(count: int) -> None:
    """Refuses that many records in one batch: before they are made, if a request asks for many."""
    if count > RECORDS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"this would write {count} records at once, at most {RECORDS_MAX} are allowed",
        )


class Decision(Generic[R_co]):
    """All records are one batch, and happen together or not at all. Where that is not needed (a
    broker with a hundred thousand partitions is fenced), `in_parts` lets it be several."""

    __slots__ = ("in_parts", "records", "reply")

    def __init__(self, records: Sequence[Message], reply: R_co, *, in_parts: bool = False) -> None:
        self.records = records
        self.reply = reply
        self.in_parts = in_parts
        if not in_parts:
            check_bound(len(records))

    def batches(self) -> list[Sequence[Message]]:
        """What to append, in order; each part is applied before the next is written."""
        records = self.records
        return [
            records[start : start + RECORDS_MAX] for start in range(0, len(records), RECORDS_MAX)
        ]
