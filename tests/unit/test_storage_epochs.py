"""Leader epochs: where they begin and end, and how two replicas find where they part."""

from __future__ import annotations

import pytest

from headwater.io.memory import MemoryDisk
from headwater.storage import Log
from headwater.storage.epochs import EpochCache, read_epochs
from tests.support.logs import PATH, append, batch, flush, open_log, reopen, settings


def test_epochs_begin_where_they_were_assigned() -> None:
    cache = EpochCache([(0, 0), (2, 10), (5, 20)])
    assert cache.latest == 5
    assert cache.entries == [(0, 0), (2, 10), (5, 20)]


def test_an_epoch_assigned_again_keeps_its_start() -> None:
    cache = EpochCache([(1, 10)])
    cache.assign(1, 15)
    assert cache.entries == [(1, 10)]


def test_an_assignment_that_contradicts_older_ones_replaces_them() -> None:
    cache = EpochCache([(0, 0), (2, 10), (3, 20)])
    cache.assign(4, 10)
    assert cache.entries == [(0, 0), (4, 10)]
    cache.assign(1, 30)
    assert cache.entries == [(0, 0), (1, 30)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (10, 0)),  # below the first known: ends where that begins
        (1, (20, 1)),
        (2, (20, 1)),  # never led: ends with the one before it
        (3, (30, 3)),
        (4, (50, 4)),  # the newest ends with the log
        (5, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    cache = EpochCache([(1, 10), (3, 20), (4, 30)])
    assert cache.end_of(asked, 50) == answer


def test_an_empty_cache_knows_no_end() -> None:
    assert EpochCache().end_of(0, 50) == (-1, -1)


def test_the_epoch_of_an_offset() -> None:
    cache = EpochCache([(1, 10), (3, 20)])
    assert [cache.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [None, 1, 1, 3, 3]


def test_truncation_from_the_end_forgets_epochs_without_records() -> None:
    cache = EpochCache([(1, 10), (3, 20), (4, 30)])
    cache.truncate_from_end(20)
    assert cache.entries == [(1, 10)]


def test_truncation_from_the_start_keeps_the_epoch_that_spans_it() -> None:
    cache = EpochCache([(1, 10), (3, 20), (4, 30)])
    cache.truncate_from_start(25)
    assert cache.entries == [(3, 25), (4, 30)]
    cache.truncate_from_start(30)
    assert cache.entries == [(4, 30)]
    cache.truncate_from_start(5)
    assert cache.entries == [(4, 30)]


# A follower asks for the end of its last epoch and truncates to the smaller of the leader's answer
# and its own end of that epoch: each (epoch, count) list is a log.
DIVERGENCES = {
    "A: the same log": ([(1, 5)], [(1, 5)], 5),
    "B: the follower is behind": ([(1, 5)], [(1, 3)], 3),
    "C: the follower has more of the same epoch": ([(1, 5), (2, 1)], [(1, 8)], 5),
    "D: the follower has an epoch that was not committed": (
        [(1, 5), (3, 2)],
        [(1, 5), (2, 4)],
        5,
    ),
    "E: the leader has an epoch between": ([(1, 4), (2, 3), (4, 1)], [(1, 4), (3, 5)], 4),
    "F: both have short epochs of their own": (
        [(1, 2), (3, 2), (5, 2)],
        [(1, 2), (2, 2), (4, 2)],
        2,
    ),
    "G: nothing in common": ([(3, 4)], [(1, 2), (2, 2)], 0),
}


def built(epochs: list[tuple[int, int]]) -> EpochCache:
    cache, offset = EpochCache(), 0
    for epoch, count in epochs:
        cache.assign(epoch, offset)
        offset += count
    return cache


@pytest.mark.parametrize("case", DIVERGENCES)
def test_a_follower_finds_where_it_parts_from_its_leader(case: str) -> None:
    of_leader, of_follower, agreed = DIVERGENCES[case]
    leader, follower = built(of_leader), built(of_follower)
    leader_end = sum(count for _, count in of_leader)
    end = sum(count for _, count in of_follower)
    while follower.latest >= 0:
        told = leader.end_of(follower.latest, leader_end)
        own = follower.end_of(told.epoch, end)
        end = min(end, told.offset, own.offset if own.offset >= 0 else end)
        if told.epoch == follower.latest:
            break
        follower.truncate_from_end(end)
    assert end == agreed


def test_the_checkpoint_has_kafkas_text() -> None:
    cache = EpochCache()
    cache.assign(0, 0)
    cache.assign(3, 42)
    assert cache.take_unsaved(log_end=50) == b"0\n2\n0 0\n3 42\n"
    assert cache.take_unsaved(log_end=50) is None


def test_an_epoch_without_records_is_saved_when_it_has_some() -> None:
    cache = EpochCache([(0, 0)])
    cache.assign(1, 10)
    assert cache.take_unsaved(log_end=10) is None
    assert cache.take_unsaved(log_end=11) == b"0\n2\n0 0\n1 10\n"


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_survive_a_restart(clean: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for epoch in (0, 0, 2, 5):
        append(log, batch(b"x"), epoch=epoch)
    log = reopen(disk, log, clean=clean)
    assert log.epochs.entries == [(0, 0), (2, 2), (5, 3)]


@pytest.mark.parametrize("content", [b"0\n2\n0 0\n", b"garbage", b"1\n0\n", b"0\n1\n0 x\n"])
def test_a_broken_checkpoint_counts_as_none(content: bytes) -> None:
    disk = MemoryDisk()
    disk.make_dirs(PATH)
    disk.write_atomically(f"{PATH}/leader-epoch-checkpoint", content)
    assert read_epochs(disk, f"{PATH}/leader-epoch-checkpoint").entries == []


# Truncation


def truncated_and_appended_again(disk: MemoryDisk) -> Log:
    """Epoch 5 from offset 3 on was flushed, then cut and replaced by records of epoch 4."""
    log = open_log(disk)
    for epoch in (3, 4, 4, 5, 5):
        append(log, batch(b"x"), epoch=epoch)
    flush(log)
    log.truncate_to(3)
    append(log, batch(b"y"), epoch=4)
    return log


def test_the_epochs_that_a_truncation_forgets_are_not_in_the_file_any_more() -> None:
    disk = MemoryDisk()
    truncated_and_appended_again(disk)
    assert read_epochs(disk, f"{PATH}/leader-epoch-checkpoint").entries == [(3, 0), (4, 1)]


def test_a_crash_after_a_truncation_does_not_bring_its_epochs_back() -> None:
    disk = MemoryDisk()
    log = reopen(disk, truncated_and_appended_again(disk), clean=False)
    assert log.end == 4
    assert log.epochs.entries == [(3, 0), (4, 1)]


@pytest.mark.parametrize("epoch", [4, 6])
def test_recovery_believes_the_batches_and_not_a_stale_file(epoch: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=settings(segment_bytes=2 * len(batch(b"x"))))
    for each in (3, 4, 4, epoch):
        append(log, batch(b"x"), epoch=each)
    flush(log)
    stale = b"0\n3\n3 0\n4 1\n5 3\n"
    disk.write_atomically(f"{PATH}/leader-epoch-checkpoint", stale)
    log = reopen(disk, log, clean=False, recovery_point=2)
    assert log.epochs.entries == [(3, 0), (4, 1)] + ([(6, 3)] if epoch == 6 else [])


def test_a_flush_that_a_truncation_overtook_does_not_write_its_epochs() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for epoch in (4, 5):
        append(log, batch(b"x"), epoch=epoch)
    late = log.flush_job()
    assert late is not None
    log.truncate_to(1)
    append(log, batch(b"y"), epoch=4)
    late.run()
    log.flushed(late)
    assert read_epochs(disk, f"{PATH}/leader-epoch-checkpoint").entries == [(4, 0)]
