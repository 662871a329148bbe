"""What a decision is: the facts to write, and what to answer once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from headwater.errors import ApiError, ErrorCode
from headwater.protocol import Message

# One decision is one batch, and a batch has a bound. Kafka refuses at the same count.
RECORDS_MAX = 10_000

R_co = TypeVar("R_co", covariant=True)


class Decision(Generic[R_co]):
    __slots__ = ("records", "reply")

    def __init__(self, records: Sequence[Message], reply: R_co) -> None:
        self.records = records
        self.reply = reply
        if len(records) > RECORDS_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"this would write {len(records)} records at once, "
                f"at most {RECORDS_MAX} are allowed",
            )
