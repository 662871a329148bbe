"""Compaction of one log: what it may touch, what it leaves, what it survives."""

from __future__ import annotations

import contextlib

import pytest

from headwater import _core
from headwater.errors import ApiError
from headwater.io.memory import MemoryDisk
from headwater.storage import Log, Origin
from headwater.storage.cleaner import CleaningJob, CleaningLimits, Uncleanable, dirtiest, find_dirty
from tests.support import logs as make
from tests.support.cleaners import LIMITS, clean, steps
from tests.support.logs import (
    NOW,
    PATH,
    TightDisk,
    append,
    contents,
    open_log,
    records,
    reopen,
    settings,
)

RETENTION = 1000


def compacted(disk: MemoryDisk, **overrides: object) -> Log:
    overrides.setdefault("delete_retention_ms", RETENTION)
    return open_log(
        disk, settings(cleanup_policy="compact", min_cleanable_dirty_ratio=0, **overrides)
    )


def put(log: Log, *rows: tuple[bytes, bytes | None], timestamp: int = NOW, **options: int) -> int:
    data = records([(key, value, [], timestamp) for key, value in rows], **options)
    return append(log, data)


def kept(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    for segment in log.segments:
        found += [
            (record.offset, record.key, record.value)
            for record in _core.decode(segment.file.pread(segment.size, 0))
        ]
    return found


def headers(log: Log) -> list[_core.Batch]:
    found = []
    for segment in log.segments:
        found += _core.scan(segment.file.pread(segment.size, 0))[0]
    return found


def test_only_the_last_record_of_each_key_is_left() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW)
    put(log, (b"c", b"1"), (b"b", b"2"))
    log.roll(NOW)
    put(log, (b"a", b"3"))
    clean(disk, log, now_ms=NOW)
    assert kept(log) == [
        (2, b"a", b"2"),
        (3, b"c", b"1"),
        (4, b"b", b"2"),
        (5, b"a", b"3"),  # the active segment is left alone
    ]
    assert [segment.base for segment in log.segments] == [0, 5]
    assert log.cleaned_to == 5
    assert log.size == sum(segment.size for segment in log.segments)


def test_readers_find_what_is_left_from_every_offset() -> None:
    disk = MemoryDisk()
    log = compacted(disk, segment_bytes=400, index_interval_bytes=0)
    for i in range(60):
        put(log, (b"key %d" % (i % 7), b"%d" % i))
    expected = {i: b"%d" % i for i in range(53, 60)}
    clean(disk, log, now_ms=NOW)
    left = dict(contents(log))
    assert left.items() >= expected.items()
    assert len(left) < 20
    for offset in range(log.end):
        read = log.read(offset, bytes_max=1 << 20, upto=log.end)
        assert read.slice is not None
        first = next(
            record.offset for record in _core.decode(read.slice.read()) if record.offset >= offset
        )
        assert first == min(at for at in left if at >= offset)


def test_a_deletion_mark_goes_in_a_round_after_its_horizon() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    put(log, (b"a", b"1"), (b"b", b"1"), (b"b", None))
    log.roll(NOW)
    put(log, (b"c", b"1"))
    log.roll(NOW)
    clean(disk, log, now_ms=NOW)
    assert kept(log) == [(0, b"a", b"1"), (2, b"b", None), (3, b"c", b"1")]
    marked = headers(log)[0]
    assert marked.has_delete_horizon
    assert marked.base_timestamp == NOW + RETENTION
    assert [record.timestamp for record in _core.decode(log.segments[0].file.pread(999, 0))] == [
        NOW
    ] * 3
    put(log, (b"c", b"2"))
    log.roll(NOW)
    clean(disk, log, now_ms=NOW + RETENTION - 1)
    assert (2, b"b", None) in kept(log)
    put(log, (b"c", b"3"))
    log.roll(NOW)
    clean(disk, log, now_ms=NOW + RETENTION)
    assert kept(log) == [(0, b"a", b"1"), (5, b"c", b"3")]


def test_the_last_batch_of_a_producer_stays_and_with_it_its_sequence() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    for sequence in range(3):
        put(log, (b"k", b"%d" % sequence), producer_id=5, producer_epoch=0, base_sequence=sequence)
    put(log, (b"k", b"new"))
    log.roll(NOW)
    clean(disk, log, now_ms=NOW)
    assert [(batch.base_offset, batch.count) for batch in headers(log)] == [(2, 0), (3, 1)]
    log = reopen(disk, log, clean=False, recovery_point=0)
    again = records([(b"k", b"2", [], NOW)], producer_id=5, producer_epoch=0, base_sequence=2)
    assert log.append_as_leader(again, epoch=0, now_ms=NOW).duplicate
    put(log, (b"k", b"3"), producer_id=5, producer_epoch=0, base_sequence=3)


def transact(log: Log, producer: int, sequence: int, value: bytes, *, abort: bool) -> None:
    put(
        log,
        (b"t", value),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    append(log, make.marker(producer, abort=abort), origin=Origin.COORDINATOR)


def test_aborted_records_go_and_their_marker_follows_after_the_horizon() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    transact(log, 5, 0, b"aborted", abort=True)
    transact(log, 5, 1, b"committed", abort=False)
    put(log, (b"other", b"1"))
    log.roll(NOW)
    clean(disk, log, now_ms=NOW)
    assert (0, b"t", b"aborted") not in kept(log)
    assert (2, b"t", b"committed") in kept(log)
    assert [batch.base_offset for batch in headers(log) if batch.is_control] == [1, 3]
    # Nothing is left of the transaction, but this was only seen when its records went.
    assert not any(batch.has_delete_horizon for batch in headers(log))
    put(log, (b"other", b"2"))
    log.roll(NOW)
    clean(disk, log, now_ms=NOW)
    assert [batch.has_delete_horizon for batch in headers(log) if batch.is_control] == [True, False]
    assert log.aborted(0, log.end) == []
    put(log, (b"other", b"3"))
    log.roll(NOW)
    clean(disk, log, now_ms=NOW + RETENTION)
    assert [batch.base_offset for batch in headers(log) if batch.is_control] == [3]
    assert kept(log)[-1][2] == b"3"


def test_an_open_transaction_holds_compaction_back() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    put(log, (b"a", b"1"))
    log.roll(NOW)
    put(log, (b"a", b"2"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(NOW)
    put(log, (b"a", b"3"))
    log.roll(NOW)
    dirty = find_dirty(log, last_stable_offset=log.last_stable_offset(log.end), now_ms=NOW)
    assert dirty.upper_bound == 1
    clean(disk, log, now_ms=NOW)
    assert [offset for offset, _, _ in kept(log)] == [0, 1, 2]


def test_nothing_above_the_high_watermark_is_touched() -> None:
    log = compacted(MemoryDisk())
    for _ in range(3):
        put(log, (b"a", b"1"))
        log.roll(NOW)
    dirty = find_dirty(log, last_stable_offset=log.last_stable_offset(2), now_ms=NOW)
    assert dirty.upper_bound == 2


def test_young_records_wait_and_old_ones_do_not() -> None:
    log = compacted(MemoryDisk(), min_compaction_lag_ms=500, max_compaction_lag_ms=2000)
    put(log, (b"a", b"1"), timestamp=NOW)
    log.roll(NOW)
    put(log, (b"a", b"2"), timestamp=NOW + 400)
    log.roll(NOW)

    def at(now_ms: int) -> tuple[int, bool]:
        dirty = find_dirty(log, last_stable_offset=log.end, now_ms=now_ms)
        return dirty.upper_bound, dirty.is_overdue

    assert at(NOW + 499) == (0, False)
    assert at(NOW + 500) == (1, False)
    assert at(NOW + 900) == (2, False)
    assert at(NOW + 2001) == (2, True)


def test_the_dirtiest_log_that_is_worth_it_comes_first() -> None:
    logs = []
    for dirty_batches in (1, 3, 2):
        disk = MemoryDisk()
        log = open_log(disk, settings(cleanup_policy="compact", min_cleanable_dirty_ratio=0.6))
        put(log, (b"a", b"1"))
        log.roll(NOW)
        log.mark_cleaned(1)
        for _ in range(dirty_batches):
            put(log, (b"a", b"1"))
        log.roll(NOW)
        logs.append(log)
    found = [find_dirty(log, last_stable_offset=log.end, now_ms=NOW) for log in logs]
    assert [dirty.is_worth_it for dirty in found] == [False, True, True]
    chosen = dirtiest(found)
    assert chosen is not None
    assert chosen.log is logs[1]
    assert dirtiest(found[:1]) is None


def test_segments_are_put_together_up_to_the_size_of_one() -> None:
    disk = MemoryDisk()
    log = compacted(disk, segment_bytes=1000)
    for i in range(12):
        put(log, (b"%d" % i, b"x" * 200))
        log.roll(NOW)
    clean(disk, log, now_ms=NOW)
    assert [segment.base for segment in log.segments] == [0, 3, 6, 9, 12]
    clean_again = find_dirty(log, last_stable_offset=log.end, now_ms=NOW)
    assert clean_again.dirty_bytes == 0


def test_a_map_that_is_too_small_makes_progress_round_by_round() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    for i in range(40):
        put(log, (b"%d" % (i % 20), b"%d" % i))
    log.roll(NOW)
    small = CleaningLimits(memory_bytes=24 * 9, load_factor=0.9, chunk_bytes=512)
    rounds: list[int] = []
    while log.cleaned_to != 40:
        clean(disk, log, now_ms=NOW, limits=small)
        rounds.append(log.cleaned_to or 0)
    assert rounds == sorted(set(rounds))
    assert len(rounds) > 2
    assert [int(value or b"") for _, _, value in kept(log)] == list(range(20, 40))


def test_a_batch_with_more_keys_than_the_map_holds_is_said_to_be_uncleanable() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    put(log, *((b"%d" % i, b"x") for i in range(20)))
    log.roll(NOW)
    dirty = find_dirty(log, last_stable_offset=log.end, now_ms=NOW)
    tiny = CleaningLimits(memory_bytes=24 * 9, load_factor=0.9, chunk_bytes=512)
    with pytest.raises(Uncleanable, match="more keys than the 8"):
        CleaningJob(disk, dirty, limits=tiny, now_ms=NOW).learn()


def test_a_corrupt_batch_makes_a_log_uncleanable_and_leaves_it_as_it_is() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW)
    log.segments[0].file.pwrite(b"?", 70)
    before = disk.list(PATH)
    dirty = find_dirty(log, last_stable_offset=log.end, now_ms=NOW)
    job = CleaningJob(disk, dirty, limits=LIMITS, now_ms=NOW)
    with pytest.raises(Uncleanable, match="crc"):
        job.learn()
    assert disk.list(PATH) == before


def test_appends_go_on_while_a_log_is_compacted() -> None:
    disk = MemoryDisk()
    log = compacted(disk)
    put(log, (b"a", b"0"))
    log.roll(NOW)
    done = 0
    for _ in steps(disk, log, now_ms=NOW):
        done += 1
        put(log, (b"b%d" % done, b"x"))
    assert done > 5
    assert [offset for offset, _ in contents(log)] == list(range(log.end))


@pytest.mark.parametrize("cut_at", [1, 3])
def test_a_cut_while_a_log_is_compacted_ends_the_round(cut_at: int) -> None:
    """Below the high watermark too: an unclean election takes what was committed."""
    for stop in range(10):
        disk = MemoryDisk()
        log = compacted(disk)
        for i in range(4):
            put(log, (b"%d" % i, b"x"))
            log.roll(NOW)
        put(log, (b"a", b"last"))
        expected = [(i, b"%d" % i, b"x") for i in range(cut_at)]
        for count, _ in enumerate(steps(disk, log, now_ms=NOW, high_watermark=3)):
            if count == stop:
                log.truncate_to(cut_at)
        assert kept(log) == expected
        log = reopen(disk, log, clean=False, recovery_point=None, cleaned_to=log.cleaned_to)
        assert log.end == cut_at, stop
        assert kept(log) == expected
        left = {name.partition(".")[2] for name in disk.list(PATH)}
        assert not any("cleaned" in name or "swap" in name for name in left)


def test_a_log_compacted_once_keeps_its_gaps_whatever_its_policy_says_now() -> None:
    disk = MemoryDisk()
    log = compacted(disk, segment_bytes=200)
    for _ in range(8):
        put(log, (b"a", b"x" * 100))
    clean(disk, log, now_ms=NOW)
    cleaned_to = log.cleaned_to
    left = kept(log)
    log.close(clean=False)
    plain = open_log(disk, settings(), cleaned_to=cleaned_to)
    assert plain.reports == []
    assert kept(plain) == left


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "starts again"])
@pytest.mark.parametrize("refused", range(1, 16))
def test_a_disk_without_room_for_a_name_leaves_the_old_or_the_new(
    refused: int, goes_on: bool
) -> None:
    disk = TightDisk()
    log = compacted(disk)
    for value in (b"1", b"2", b"3"):
        put(log, (b"a", value), (b"b%c" % value[0], value))
        log.roll(NOW)
    before, after = (
        kept(log),
        [(1, b"b1", b"1"), (3, b"b2", b"2"), (4, b"a", b"3"), (5, b"b3", b"3")],
    )
    disk.refused = refused
    with contextlib.suppress(ApiError):
        clean(disk, log, now_ms=NOW)
    assert log.health.is_online
    if goes_on:
        put(log, (b"c", b"1"))
        log.roll(NOW)
        clean(disk, log, now_ms=NOW)
        after = [*after, (6, b"c", b"1")]
    log = reopen(disk, log, clean=False, recovery_point=log.trusted_end, cleaned_to=0)
    assert not log.reports
    assert kept(log) in ([after] if goes_on else [before, after])
