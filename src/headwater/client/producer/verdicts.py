"""What an answer to a produce request means for a batch. No I/O: code in, what to do out."""

from __future__ import annotations

from enum import Enum, auto

from headwater.errors import RETRIABLE, ErrorCode


class Verdict(Enum):
    DONE = auto()
    AGAIN = auto()  # the same may succeed later
    AGAIN_ELSEWHERE = auto()  # another broker leads, or none: look, then send again
    GAP = auto()  # the broker misses what stands before it, or has forgotten the producer
    SPLIT = auto()
    REFUSED = auto()


_ELSEWHERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
_GAPS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


def judge(code: int, *, records: int, idempotent: bool) -> Verdict:
    """What to do with a batch of so many records that was answered with this code."""
    # A duplicate is there already, though the broker no longer knows where.
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DONE
    if code == ErrorCode.MESSAGE_TOO_LARGE and records > 1:
        return Verdict.SPLIT
    if code in _GAPS and idempotent:
        return Verdict.GAP
    if code in _ELSEWHERE:
        return Verdict.AGAIN_ELSEWHERE
    return Verdict.AGAIN if code in RETRIABLE else Verdict.REFUSED
