"""Which micro-batches are small enough for the driver."""

from __future__ import annotations

import pytest

from headwater.model import TopicPartition
from headwater.spark.small_batches import RECORDS_MAX, SmallBatches

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_batch_with_few_records_is_small() -> None:
    small = SmallBatches()
    assert small.is_small({A: 10, B: 5}, {A: 10 + RECORDS_MAX, B: 5})
    assert not small.is_small({A: 10, B: 5}, {A: 10 + RECORDS_MAX, B: 6})


def test_the_records_of_a_new_partition_count() -> None:
    assert not SmallBatches().is_small({A: 10}, {A: 10, B: RECORDS_MAX + 1})


def test_a_batch_of_unknown_size_is_not_small() -> None:
    assert not SmallBatches().is_small(None, {A: 1})
    assert not SmallBatches().is_small({A: 1}, None)


def test_batches_that_do_not_fit_are_tried_more_and_more_rarely_until_one_does() -> None:
    small = SmallBatches()

    def until_tried() -> int:
        skipped = 0
        while not small.is_small({A: 0}, {A: 1}):
            skipped += 1
        return skipped

    waits = []
    for _ in range(8):
        waits.append(until_tried())
        small.found(fits=False)
    assert waits == [0, 1, 3, 7, 15, 31, 63, 63]
    until_tried()
    small.found(fits=True)
    assert until_tried() == 0


@pytest.mark.parametrize("fits", [True, False])
def test_large_batches_do_not_shorten_the_wait(fits: bool) -> None:
    small = SmallBatches()
    small.found(fits=fits)
    for _ in range(10):
        assert not small.is_small({A: 0}, {A: RECORDS_MAX + 1})
    assert small.is_small({A: 0}, {A: 1}) == fits
