"""A truncation in steps: the cut, the job that makes it durable, and its end."""

from __future__ import annotations

from headwater.io.memory import MemoryDisk
from headwater.storage import Log
from headwater.storage.epochs import read_epochs
from tests.support.logs import (
    PATH,
    append,
    batch,
    contents,
    flush,
    open_log,
    reopen,
    sent,
    settings,
)


def a_log(disk: MemoryDisk, **options: object) -> Log:
    log = open_log(disk, settings(**options))
    for number in range(6):
        append(log, sent(7, number), epoch=number // 2)
    flush(log)
    return log


def test_readers_see_a_cut_at_once_and_producers_when_it_has_ended() -> None:
    log = a_log(MemoryDisk())
    job = log.cut_at(3)
    assert job is not None
    assert (log.end, log.latest_epoch, log.recovery_point) == (3, 1, 3)
    assert [offset for offset, _ in contents(log)] == [0, 1, 2]
    job.run()
    log.cut_ended(job)
    entry = log.producers.get(7)
    assert entry is not None
    assert entry.last_sequence == 2
    assert append(log, sent(7, 3), epoch=5) == 3


def test_the_epoch_file_is_written_by_the_job() -> None:
    disk = MemoryDisk()
    log = a_log(disk)
    path = f"{PATH}/leader-epoch-checkpoint"
    assert read_epochs(disk, path).entries == [(0, 0), (1, 2), (2, 4)]
    job = log.cut_at(3)
    assert job is not None
    job.run()
    assert read_epochs(disk, path).entries == [(0, 0), (1, 2)]


def test_a_cut_at_the_end_forgets_epochs_without_records_and_needs_no_job() -> None:
    log = a_log(MemoryDisk())
    log.assign_epoch(9, log.end)
    assert log.latest_epoch == 9
    assert log.cut_at(log.end) is None
    assert log.latest_epoch == 2


def test_a_log_that_begins_anew_has_nothing_left() -> None:
    disk = MemoryDisk()
    log = a_log(disk, segment_bytes=200)
    job = log.begin_anew(100)
    assert len(job.retired) > 1
    job.run()
    log.cut_ended(job)
    assert (log.start, log.end, log.latest_epoch, len(log.producers)) == (100, 100, -1, 0)
    assert append(log, batch(b"x"), epoch=4) == 100
    again = reopen(disk, log, clean=True)
    assert [offset for offset, _ in contents(again)] == [100]


def test_a_log_may_be_deleted_before_its_truncation_is_durable() -> None:
    disk = MemoryDisk()
    log = a_log(disk)
    job = log.cut_at(3)
    assert job is not None
    log.move_to("/data/orders-3.gone-delete")
    log.close(clean=False)
    job.run()
    log.cut_ended(job)
    assert log.health.is_online


def test_a_later_cut_wins() -> None:
    log = a_log(MemoryDisk())
    first = log.cut_at(5)
    second = log.cut_at(2)
    assert first is not None
    assert second is not None
    second.run()
    log.cut_ended(second)
    first.run()
    log.cut_ended(first)
    entry = log.producers.get(7)
    assert entry is not None
    assert entry.last_sequence == 1
