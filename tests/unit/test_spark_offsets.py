"""Positions, ranges, limits and tasks of the Spark source: all of it without Spark or a broker."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model import TopicPartition
from headwater.spark.errors import CheckpointError
from headwater.spark.offsets import (
    SourceOffset,
    limited_by_bytes,
    limited_by_count,
    near_the_end_of_retention,
)
from headwater.spark.options import Subscription
from headwater.spark.ranges import OffsetRange, pack, plan

ORDERS = Subscription(topics=("orders",))
OLD, NEW = b"a" * 16, b"b" * 16


def at(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def position(*offsets: int, topic_id: bytes = OLD) -> SourceOffset:
    return SourceOffset(
        {at(index): each for index, each in enumerate(offsets)}, {"orders": topic_id}
    )


def spans(
    start: SourceOffset, end: SourceOffset, earliest: dict[int, int] | None = None
) -> list[str]:
    first = {at(partition): offset for partition, offset in (earliest or {}).items()}
    return [str(each) for each in plan(start, end, first).ranges]


def losses(
    start: SourceOffset, end: SourceOffset, earliest: dict[int, int] | None = None
) -> tuple[str, ...]:
    first = {at(partition): offset for partition, offset in (earliest or {}).items()}
    return plan(start, end, first).losses


def test_a_position_survives_its_json() -> None:
    written = position(3, 7).to_json()
    assert written["orders"] == {"0": 3, "1": 7}
    assert SourceOffset.from_json(written, ORDERS) == position(3, 7)


def test_a_checkpoint_of_sparks_own_source_is_taken() -> None:
    assert SourceOffset.from_json({"orders": {"0": 3}}, ORDERS).offsets == {at(0): 3}


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    with pytest.raises(CheckpointError, match="offsets of clicks, which this query does not read"):
        SourceOffset.from_json({"clicks": {"0": 3}}, ORDERS)


@pytest.mark.parametrize(
    "foreign", [5, {"logOffset": 3}, {"orders": {"x": 1}}, {"orders": {"0": "y"}}]
)
def test_a_checkpoint_of_another_kind_of_source_is_refused(foreign: object) -> None:
    with pytest.raises(CheckpointError, match="belongs to another query"):
        SourceOffset.from_json(foreign, ORDERS)


def test_what_lies_between_two_positions_is_read() -> None:
    assert spans(position(3, 7), position(5, 7)) == ["orders-0 [3, 5)"]


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    assert spans(position(3), position(3, 9), {1: 0}) == ["orders-1 [0, 9)"]
    assert losses(position(3), position(3, 9), {1: 0}) == ()


def test_a_new_partition_that_does_not_start_at_zero_is_a_loss() -> None:
    assert "starts at offset 4 instead of 0" in losses(position(3), position(3, 9), {1: 4})[0]


def test_a_recreated_topic_is_read_from_its_beginning_and_reported() -> None:
    start, end = position(30, 40), position(5, 0, topic_id=NEW)
    assert spans(start, end) == ["orders-0 [0, 5)"]
    assert len(losses(start, end)) == 1
    assert "deleted and created again" in losses(start, end)[0]


def test_an_unknown_id_is_no_reason_to_doubt() -> None:
    start = SourceOffset(position(3).offsets)
    assert losses(start, position(5)) == ()


def test_what_retention_took_is_a_loss_with_its_offsets() -> None:
    assert spans(position(3), position(20), {0: 10}) == ["orders-0 [10, 20)"]
    assert (
        "read up to offset 3; the records up to 10 are gone"
        in losses(position(3), position(20), {0: 10})[0]
    )


def test_a_log_that_ends_before_where_it_was_read_to_is_a_loss() -> None:
    assert spans(position(30), position(20)) == []
    assert "read up to offset 30 and ends at 20" in losses(position(30), position(20))[0]


def test_a_limit_takes_of_each_partition_by_its_share() -> None:
    start, end = {at(0): 0, at(1): 0, at(2): 5}, {at(0): 900, at(1): 100, at(2): 5}
    assert limited_by_count(start, end, 100) == {at(0): 90, at(1): 10, at(2): 5}


def test_a_limit_starves_no_partition() -> None:
    limited = limited_by_count({at(0): 0, at(1): 0}, {at(0): 1_000_000, at(1): 3}, 10)
    assert limited == {at(0): 9, at(1): 1}


def test_a_limit_by_bytes_counts_what_an_offset_weighs() -> None:
    start, end = {at(0): 0, at(1): 0}, {at(0): 1000, at(1): 1000}
    limited = limited_by_bytes(start, end, 101_000, {at(0): 100.0, at(1): 1.0})
    assert limited == end
    limited = limited_by_bytes(start, end, 10_100, {at(0): 100.0, at(1): 1.0})
    assert limited == {at(0): 100, at(1): 100}


def test_the_alarm_is_for_unread_records_among_the_oldest() -> None:
    earliest, latest = {at(0): 100}, {at(0): 1100}
    assert near_the_end_of_retention({at(0): 150}, earliest, latest, 0.1) == [at(0)]
    assert near_the_end_of_retention({at(0): 900}, earliest, latest, 0.1) == []
    assert near_the_end_of_retention({at(0): 0}, {at(0): 0}, latest, 0.1) == []


# Tasks


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("orders", index, 0, size) for index, size in enumerate(sizes)]


def test_a_little_is_one_task() -> None:
    assert len(pack(ranges(*[10] * 32), cores=8)) == 1


def test_there_are_about_as_many_tasks_as_cores() -> None:
    tasks = pack(ranges(*[10_000] * 32), cores=4)
    assert [sum(map(len, each)) for each in tasks] == [80_000] * 4


def test_a_lot_is_a_task_for_each_partition() -> None:
    assert len(pack(ranges(*[1_000_000] * 32), cores=4)) == 32


def test_tasks_can_be_pinned() -> None:
    assert len(pack(ranges(*[10] * 32), cores=4, tasks=7)) == 7


def test_min_partitions_splits_the_largest() -> None:
    assert len(pack(ranges(1000, 10), cores=2, min_partitions=6)) == 6


def test_no_task_has_more_than_its_bound_of_records() -> None:
    tasks = pack(ranges(1000, 10), cores=2, records_max=300)
    assert [len(each[0]) for each in tasks] == [250, 250, 250, 250, 10]


@given(
    st.lists(st.integers(1, 2_000_000), min_size=1, max_size=40),
    st.integers(1, 16),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1000, 10**6)),
)
def test_tasks_cover_every_offset_once_and_never_change(
    sizes: list[int], cores: int, least: int | None, most: int | None
) -> None:
    pieces = ranges(*sizes)
    tasks = pack(pieces, cores=cores, min_partitions=least, records_max=most)
    assert tasks == pack(
        list(reversed(pieces))[::-1], cores=cores, min_partitions=least, records_max=most
    )
    flat = sorted(each for task in tasks for each in task)
    for whole in pieces:
        parts = [each for each in flat if each.partition == whole.partition]
        assert parts[0].start == 0
        assert parts[-1].end == whole.end
        assert all(one.end == two.start for one, two in pairwise(parts))
    assert all(len(each) > 0 for each in flat)
