"""The partition for records without a key, and what an answer means."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headwater.client.producer.intake_callbacks import choose_partition
from headwater.client.producer.outcomes import ErrorAction, classify_error
from headwater.errors import ErrorCode


def drawn(queued: list[int | None], *, adaptive: bool = True, count: int = 3000) -> Counter[int]:
    random = Random(1)
    return Counter(
        choose_partition(random, queued=queued, partitions=len(queued), adaptive=adaptive)
        for _ in range(count)
    )


def test_partitions_that_are_equally_busy_are_drawn_equally() -> None:
    counts = drawn([2, 2, 2])
    assert set(counts) == {0, 1, 2}
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_a_long_queue_is_drawn_less_often() -> None:
    # Kafka's example in KIP-794: queues 0, 3, 1 are drawn 4, 1, 3 times of 8.
    counts = drawn([0, 3, 1], count=8000)
    assert [round(counts[index] / 1000) for index in range(3)] == [4, 1, 3]


def test_without_adaptive_partitioning_queues_do_not_matter() -> None:
    counts = drawn([0, 9], adaptive=False)
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_a_partition_without_a_leader_is_left_out() -> None:
    assert set(drawn([None, 5, None])) == {1}


def test_if_none_has_a_leader_any_will_do() -> None:
    assert set(drawn([None, None, None])) == {0, 1, 2}


@pytest.mark.parametrize(
    ("code", "records", "idempotent", "action"),
    [
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 5, True, ErrorAction.DONE),
        (ErrorCode.MESSAGE_TOO_LARGE, 5, True, ErrorAction.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, 1, True, ErrorAction.FAIL),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5, True, ErrorAction.GAP),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 5, True, ErrorAction.GAP),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5, False, ErrorAction.FAIL),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, True, ErrorAction.RETRY_ELSEWHERE),
        (ErrorCode.UNKNOWN_TOPIC_ID, 5, True, ErrorAction.RETRY_ELSEWHERE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 5, True, ErrorAction.RETRY),
        (ErrorCode.CORRUPT_MESSAGE, 5, True, ErrorAction.RETRY),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 5, True, ErrorAction.FAIL),
        (ErrorCode.INVALID_RECORD, 5, True, ErrorAction.FAIL),
        (9999, 5, True, ErrorAction.FAIL),
    ],
)
def test_what_a_code_means(code: int, records: int, idempotent: bool, action: ErrorAction) -> None:
    assert classify_error(code, records=records, idempotent=idempotent) is action
