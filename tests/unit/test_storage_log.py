"""Reading, rolling, retention and truncation of a log."""

from __future__ import annotations

import pytest

from headwater import _core
from headwater.errors import ApiError, ErrorCode
from headwater.io.memory import MemoryDisk
from headwater.storage import Log, LogSlice
from tests.support.logs import (
    NOW,
    PATH,
    append,
    batch,
    contents,
    flush,
    open_log,
    records,
    reopen,
    settings,
)

SIZE = len(batch(b"x" * 10))


def filled(count: int, disk: MemoryDisk | None = None, **overrides: object) -> Log:
    """A log of `count` one-record batches of the same size, a millisecond apart."""
    log = open_log(disk, config=settings(**overrides))
    for i in range(count):
        append(log, batch(b"x" * 10, timestamp=NOW + i), now_ms=NOW + i)
    return log


def offsets(read: LogSlice) -> list[int]:
    if read.slice is None:
        return []
    return [found.base_offset for found in _core.scan(read.slice.read())[0]]


def bases(log: Log) -> list[int]:
    return [segment.base for segment in log.segments]


# Reading


def test_a_read_begins_with_the_batch_that_has_the_offset() -> None:
    log = open_log()
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d"))
    assert offsets(log.read(1, bytes_max=1000, upto=4)) == [0, 3]
    assert offsets(log.read(3, bytes_max=1000, upto=4)) == [3]


def test_a_read_at_the_end_is_empty_and_past_it_out_of_range() -> None:
    log = filled(3)
    assert log.read(3, bytes_max=1000, upto=3).slice is None
    for offset in (-1, 4):
        with pytest.raises(ApiError) as raised:
            log.read(offset, bytes_max=1000, upto=3)
        assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nothing_at_or_above_the_bound_is_given_away() -> None:
    log = filled(5)
    assert offsets(log.read(0, bytes_max=10_000, upto=3)) == [0, 1, 2]
    assert log.read(3, bytes_max=10_000, upto=3).slice is None
    assert log.read(4, bytes_max=10_000, upto=3).slice is None


def test_a_read_may_end_within_a_batch_but_has_its_first_one_whole() -> None:
    log = filled(3)
    assert log.read(0, bytes_max=SIZE + 5, upto=3).size == SIZE + 5
    assert log.read(0, bytes_max=5, upto=3).size == SIZE
    assert log.read(0, bytes_max=5, upto=3, at_least_one=False).slice is None
    assert log.read(0, bytes_max=SIZE, upto=3, at_least_one=False).size == SIZE


def test_a_slice_stays_readable_after_its_segment_is_gone() -> None:
    log = filled(4, segment_bytes=SIZE * 2, retention_bytes=SIZE)
    read = log.read(0, bytes_max=1000, upto=4)
    for retired in log.delete_old_segments(NOW, 4):
        retired.delete()
    assert offsets(read) == [0, 1]


def test_a_read_does_not_cross_segments() -> None:
    log = filled(5, segment_bytes=SIZE * 2)
    assert bases(log) == [0, 2, 4]
    assert offsets(log.read(1, bytes_max=10_000, upto=5)) == [1]
    assert offsets(log.read(2, bytes_max=10_000, upto=5)) == [2, 3]


def test_an_offset_in_a_gap_reads_what_comes_next() -> None:
    log = open_log(config=settings(segment_bytes=SIZE))
    for offset in (0, 10, 20):
        log.append_as_follower(batch(b"x" * 10, base_offset=offset), now_ms=NOW)
    assert offsets(log.read(3, bytes_max=1000, upto=21)) == [10]
    assert offsets(log.read(15, bytes_max=1000, upto=21)) == [20]


def test_a_reader_far_behind_finds_its_place_by_the_index() -> None:
    log = filled(2000, index_interval_bytes=300)
    assert len(log.segments[0].index) > 100
    for offset in (0, 1, 777, 1743, 1744, 1999):
        assert offsets(log.read(offset, bytes_max=SIZE, upto=2000)) == [offset]


def test_the_bound_of_a_slice_is_not_below_what_it_has() -> None:
    log = filled(100, index_interval_bytes=300)
    read = log.read(10, bytes_max=SIZE * 20, upto=100)
    assert 30 <= log.offset_bound(read) <= 40
    assert log.offset_bound(log.read(99, bytes_max=1000, upto=100)) == 100


# Times


def test_the_first_record_at_or_after_a_time_is_found() -> None:
    log = filled(500, index_interval_bytes=200, segment_bytes=SIZE * 100)
    for wanted in (0, 1, 250, 499):
        assert log.offset_for_time(NOW + wanted) == (NOW + wanted, wanted, 0)
    assert log.offset_for_time(0) == (NOW, 0, 0)
    assert log.offset_for_time(NOW + 500) is None


def test_times_that_go_back_are_found_where_they_are() -> None:
    log = open_log(config=settings(index_interval_bytes=0))
    for offset, delta in enumerate((5, 3, 9, 1, 7)):
        append(log, batch(b"v", timestamp=NOW + delta))
        assert log.end == offset + 1
    assert log.offset_for_time(NOW + 4) == (NOW + 5, 0, 0)
    assert log.offset_for_time(NOW + 6) == (NOW + 9, 2, 0)
    assert log.offset_for_time(NOW + 10) is None
    assert log.max_timestamp() == (NOW + 9, 2, 0)


def test_a_record_within_a_batch_is_found_by_time() -> None:
    log = open_log()
    append(log, records([(b"k", b"v", [], NOW + delta) for delta in (0, 10, 20)]))
    assert log.offset_for_time(NOW + 5) == (NOW + 10, 1, 0)
    assert log.max_timestamp() == (NOW + 20, 2, 0)


def test_records_below_the_start_are_not_found_by_time() -> None:
    log = filled(5, segment_bytes=SIZE * 2)
    log.delete_records_before(3)
    assert log.offset_for_time(0) == (NOW + 3, 3, 0)


def test_an_empty_log_knows_its_ends() -> None:
    log = open_log()
    assert log.max_timestamp() is None
    assert log.offset_for_time(0) is None
    assert log.earliest() == (-1, 0, -1)
    assert log.latest() == (-1, 0, -1)


# Rolling


def test_a_full_segment_is_followed_by_another() -> None:
    disk = MemoryDisk()
    log = filled(5, disk, segment_bytes=SIZE * 2)
    assert bases(log) == [0, 2, 4]
    names = [name for name in disk.list(PATH) if name.endswith(".snapshot")]
    assert names == ["00000000000000000002.snapshot", "00000000000000000004.snapshot"]


def test_time_between_records_rolls_a_segment() -> None:
    log = open_log(config=settings(segment_ms=1000))
    for delta in (0, 1000, 1001, 2001, 2002):
        append(log, batch(b"v", timestamp=NOW + delta))
    assert bases(log) == [0, 2, 4]


def test_jitter_makes_segments_roll_a_little_earlier() -> None:
    log = open_log(config=settings(segment_ms=1000, segment_jitter_ms=900))
    append(log, batch(b"v", timestamp=NOW))
    append(log, batch(b"v", timestamp=NOW + 1000))
    assert bases(log) == [0, 1]


def test_a_full_index_rolls_a_segment() -> None:
    log = filled(60, index_interval_bytes=0, segment_index_bytes=80)
    assert len(bases(log)) > 5
    assert contents(log) == [(i, b"x" * 10) for i in range(60)]


def test_an_offset_too_far_from_the_base_rolls_a_segment() -> None:
    log = open_log()
    append(log, batch(b"a"))
    log.append_as_follower(batch(b"b", base_offset=2**31 - 1), now_ms=NOW)
    assert bases(log) == [0]
    log.append_as_follower(batch(b"c", base_offset=2**31), now_ms=NOW)
    assert bases(log) == [0, 2**31]
    log.append_as_follower(batch(b"d", base_offset=2**33), now_ms=NOW)
    assert bases(log) == [0, 2**31, 2**33]
    assert [offset for offset, _ in contents(log)] == [0, 2**31 - 1, 2**31, 2**33]


def test_rolling_an_empty_segment_changes_nothing() -> None:
    log = filled(1)
    log.roll(NOW)
    log.roll(NOW)
    assert bases(log) == [0, 1]


def test_preallocated_segments_end_where_their_batches_do() -> None:
    disk = MemoryDisk()
    log = filled(5, disk, segment_bytes=SIZE * 2, preallocate="true")
    assert disk.size(f"{PATH}/00000000000000000000.log") == SIZE * 2
    log = reopen(disk, log, clean=True)
    assert log.end == 5
    assert disk.size(f"{PATH}/00000000000000000004.log") == SIZE


# Retention


def test_old_segments_are_retired_by_time() -> None:
    log = filled(6, segment_bytes=SIZE * 2, retention_ms=100)
    retired = log.delete_old_segments(NOW + 104, high_watermark=6)
    assert [segment.base for segment in retired] == [0, 2]
    assert (log.start, bases(log)) == (4, [4])


def test_time_takes_even_the_last_segment() -> None:
    log = filled(3, retention_ms=100)
    retired = log.delete_old_segments(NOW + 1000, high_watermark=3)
    assert [segment.base for segment in retired] == [0]
    assert (log.start, log.end, log.size, bases(log)) == (3, 3, 0, [3])
    assert append(log, batch(b"next")) == 3
    assert log.delete_old_segments(NOW + 1000, high_watermark=3) == []


def test_size_is_kept_at_least() -> None:
    log = filled(8, segment_bytes=SIZE * 2, retention_bytes=SIZE * 3, retention_ms=-1)
    log.delete_old_segments(NOW, high_watermark=8)
    assert bases(log) == [4, 6]
    assert log.size == SIZE * 4


def test_nothing_above_the_high_watermark_is_retired() -> None:
    log = filled(6, segment_bytes=SIZE * 2, retention_ms=0)
    log.delete_old_segments(NOW + 1000, high_watermark=3)
    assert bases(log) == [2, 4]


def test_deleted_records_take_their_segments_along_whatever_the_policy() -> None:
    log = filled(6, segment_bytes=SIZE * 2, cleanup_policy="compact")
    log.delete_records_before(3)
    assert (log.start, bases(log)) == (3, [0, 2, 4])
    with pytest.raises(ApiError) as raised:
        log.read(2, bytes_max=100, upto=6)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_old_segments(NOW + 10**12, high_watermark=6)
    assert bases(log) == [2, 4]


def test_records_past_the_end_cannot_be_deleted() -> None:
    with pytest.raises(ApiError) as raised:
        filled(2).delete_records_before(3)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_retired_segment_is_renamed_at_once_and_removed_later() -> None:
    disk = MemoryDisk()
    log = filled(4, disk, segment_bytes=SIZE * 2, retention_bytes=SIZE)
    retired = log.delete_old_segments(NOW, 4)
    gone = [name for name in disk.list(PATH) if name.endswith(".deleted")]
    assert gone == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
    ]
    for segment in retired:
        segment.delete()
    assert not [name for name in disk.list(PATH) if name.endswith(".deleted")]


# Truncation and epochs


def test_truncation_drops_batches_segments_and_index_entries() -> None:
    log = filled(30, segment_bytes=SIZE * 10, index_interval_bytes=100)
    log.truncate_to(15)
    assert (log.end, bases(log)) == (15, [0, 10])
    assert contents(log) == [(i, b"x" * 10) for i in range(15)]
    assert log.max_timestamp() == (NOW + 14, 14, 0)
    assert append(log, batch(b"again")) == 15


def test_truncation_at_or_past_the_end_does_nothing() -> None:
    log = filled(3)
    log.truncate_to(3)
    log.truncate_to(9)
    assert log.end == 3


def test_truncation_within_a_batch_drops_the_batch() -> None:
    log = open_log()
    append(log, batch(b"a", b"b", b"c"))
    log.truncate_to(2)
    assert (log.end, log.size) == (2, 0)
    assert append(log, batch(b"d")) == 2


def test_a_log_may_begin_anew_elsewhere() -> None:
    log = filled(6, segment_bytes=SIZE * 2)
    log.truncate_and_start_at(100)
    assert (log.start, log.end, log.size, bases(log)) == (100, 100, 0, [100])
    assert log.epochs.entries == []
    assert append(log, batch(b"x")) == 100


def test_truncation_forgets_later_epochs() -> None:
    log = open_log()
    for epoch in range(4):
        append(log, batch(b"x"), epoch=epoch)
    log.truncate_to(2)
    assert log.epochs.entries == [(0, 0), (1, 1)]
    assert log.epoch_end(1) == (2, 1)
    assert log.epoch_end(2) == (-1, -1)


# Flushing


def test_a_flush_moves_the_recovery_point_to_where_it_began() -> None:
    log = filled(3)
    job = log.flush_job()
    assert job is not None
    append(log, batch(b"meanwhile"))
    job.run()
    log.flushed(job)
    assert (log.recovery_point, log.unflushed_messages) == (3, 1)
    flush(log)
    assert log.flush_job() is None


def test_flush_ms_counts_from_the_last_flush() -> None:
    log = open_log(config=settings(flush_ms=10))
    assert not log.is_flush_due(NOW + 10), "there is nothing to flush"
    append(log, batch(b"x"))
    assert not log.is_flush_due(NOW + 9)
    assert log.is_flush_due(NOW + 10)
    flush(log)
    log.flush_checked(NOW + 10)
    append(log, batch(b"x"))
    assert not log.is_flush_due(NOW + 19)
    assert log.is_flush_due(NOW + 20)


def test_a_flush_that_a_truncation_overtook_counts_for_nothing() -> None:
    log = filled(5)
    job = log.flush_job()
    assert job is not None
    log.truncate_to(2)
    append(log, batch(b"other"))
    append(log, batch(b"other"))
    job.run()
    log.flushed(job)
    assert log.recovery_point <= 2


def test_a_flush_up_to_an_offset_leaves_later_segments_alone() -> None:
    log = filled(5, segment_bytes=SIZE * 2)
    job = log.flush_job(upto=4)
    assert job is not None
    assert len(job.files) == 2
    job.run()
    log.flushed(job)
    assert log.recovery_point == 4
