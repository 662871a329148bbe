"""Decisions: the records to write, and the reply once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from headwater.errors import ApiError, ErrorCode
from headwater.protocol import Message

# The maximum of records in a batch, as in Kafka. A request that needs more is refused.
RECORDS_MAX = 10_000

R_co = TypeVar("R_co", covariant=True)


def check_bound(count: int) -> None:
    """Refuses too many records in one batch, where possible before they are created."""
    if count > RECORDS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"this would write {count} records at once, at most {RECORDS_MAX} are allowed",
        )


class Decision(Generic[R_co]):
    """Records that are written in one batch, all or nothing. Where that is not needed (fencing a
    broker with a hundred thousand partitions), `in_parts` allows several batches."""

    __slots__ = ("in_parts", "records", "reply")

    def __init__(self, records: Sequence[Message], reply: R_co, *, in_parts: bool = False) -> None:
        self.records = records
        self.reply = reply
        self.in_parts = in_parts
        if not in_parts:
            check_bound(len(records))

    def batches(self) -> list[Sequence[Message]]:
        """Returns the batches to append, in order; each is applied before the next is written."""
        records = self.records
        return [
            records[start : start + RECORDS_MAX] for start in range(0, len(records), RECORDS_MAX)
        ]
