"""Disks that are full or fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.io import SyncFailed
from headwater.io.disk import SystemDisk
from headwater.storage import Log, StorageFailed
from headwater.storage.failures import FullDiskWarnings, Health, is_full
from headwater.testing.sim.disk import SimDisk, SimFile
from tests.support.logs import (
    NOW,
    TightDisk,
    append,
    batch,
    contents,
    flush,
    marker,
    open_log,
    reopen,
    sent,
    settings,
)


class Clock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return NOW


def sim_disk(capacity_bytes: int = 1 << 20) -> SimDisk:
    clock: Any = Clock()
    return SimDisk(clock, Random(1), capacity_bytes)


def fill(log: Log) -> int:
    """Appends until the disk is full; says how many batches it took."""
    for count in range(1000):
        try:
            append(log, batch(b"x" * 100))
        except ApiError as refusal:
            if refusal.code is ErrorCode.KAFKA_STORAGE_ERROR and log.health.is_online:
                return count
            raise
    raise AssertionError("the disk was never full")


def test_a_full_disk_refuses_appends_and_nothing_else() -> None:
    disk = sim_disk(20_000)
    log = open_log(disk)
    count = fill(log)
    assert count > 50
    assert log.health.is_online
    assert log.end == count
    assert len(contents(log)) == count
    assert log.offset_for_time(NOW) == (NOW, 0, 0)


def test_room_made_again_is_used_again() -> None:
    disk = sim_disk(20_000)
    log = open_log(disk, config=settings(segment_bytes=3000, retention_bytes=5000))
    fill(log)
    for retired in log.delete_old_segments(NOW, log.end):
        retired.delete()
    end = log.end
    assert append(log, batch(b"again")) == end


def test_a_full_disk_refuses_a_roll_and_the_log_stays_whole() -> None:
    disk = sim_disk(20_000)
    log = open_log(disk, config=settings(segment_bytes=1000))
    count = fill(log)
    assert [offset for offset, _ in contents(log)] == list(range(count))
    disk.capacity_bytes = 1 << 20
    log = reopen(disk, log, clean=False)
    assert log.reports == []
    assert log.end == count


def test_a_refused_idempotent_batch_may_come_again() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, sent(9, 0))
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(ApiError):
        append(log, sent(9, 1))
    disk.capacity_bytes = 1 << 20
    assert append(log, sent(9, 1)) == 1


def abort(log: Log, producer_id: int, epoch: int) -> None:
    log.append_marker(
        producer_id,
        epoch,
        commits=False,
        coordinator_epoch=0,
        transaction_version=2,
        epoch=0,
        now_ms=NOW,
    )


def test_an_abort_whose_marker_took_the_last_room_is_not_forgotten() -> None:
    """Its records would be read as if they were committed, or nobody could read on."""
    disk = sim_disk()
    log = open_log(disk)
    append(log, sent(9, 0, transactional=True))
    append(log, sent(8, 0, transactional=True))
    disk.capacity_bytes = disk.used_bytes + 2 * len(marker(9, abort=True))
    abort(log, 9, 1)
    abort(log, 8, 1)
    assert log.last_stable_offset(log.end) == log.end
    aborted = [(9, 0, 2, 1), (8, 1, 3, 4)]
    assert log.aborted(0, log.end) == aborted
    disk.capacity_bytes = 1 << 20
    again = reopen(disk, log, clean=False)
    assert again.aborted(0, again.end) == aborted
    again = reopen(disk, again, clean=True)
    assert again.aborted(0, again.end) == aborted


def test_an_abort_that_found_no_room_in_its_index_is_in_it_once_the_segment_is_sealed() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, sent(9, 0, transactional=True))
    disk.capacity_bytes = disk.used_bytes + len(marker(9, abort=True))
    abort(log, 9, 1)
    disk.capacity_bytes = 1 << 20
    again = reopen(disk, log, clean=True)
    assert again.aborted(0, again.end) == [(9, 0, 1, 2)]


def test_an_abort_that_found_no_room_may_be_cut_off_again() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, sent(9, 0, transactional=True))
    abort(log, 9, 1)
    append(log, sent(8, 0, transactional=True))
    end = log.end
    disk.capacity_bytes = disk.used_bytes + len(marker(8, abort=True))
    abort(log, 8, 1)
    log.truncate_to(end)
    disk.capacity_bytes = 1 << 20
    abort(log, 8, 2)
    again = reopen(disk, log, clean=True)
    assert [entry[:3] for entry in again.aborted(0, again.end)] == [(9, 0, 1), (8, 2, 3)]


def test_an_index_of_aborts_that_cannot_be_written_takes_the_directory_offline() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, sent(9, 0, transactional=True))
    disk.faults.error_on_call["write"] = 2  # the first is that of the marker
    with pytest.raises(StorageFailed):
        abort(log, 9, 1)
    assert not log.health.is_online


def test_any_other_write_error_takes_the_directory_offline() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, batch(b"a"))
    disk.faults.error_on_call["write"] = 1
    with pytest.raises(StorageFailed) as raised:
        append(log, batch(b"b"))
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.health.is_online
    with pytest.raises(StorageFailed):
        append(log, batch(b"c"))
    assert log.end == 1


def test_a_failed_sync_is_not_tried_again() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, batch(b"a"))
    job = log.flush_job()
    assert job is not None
    disk.faults.error_on_call["sync"] = 1
    with pytest.raises(StorageFailed):
        job.run()
    assert log.recovery_point == 0
    with pytest.raises(StorageFailed):
        job.run()
    assert not log.health.is_online


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_sync_that_fails_takes_the_directory_offline_whatever_it_says(code: int) -> None:
    """With late allocation a full disk may fail only the sync, and the written data is lost."""
    log = open_log(sim_disk())
    append(log, batch(b"a"))
    job = log.flush_job()
    assert job is not None
    with (
        patch.object(SimFile, "sync", side_effect=SyncFailed(code, os.strerror(code))),
        pytest.raises(StorageFailed),
    ):
        job.run()
    assert not log.health.is_online
    with pytest.raises(StorageFailed):
        append(log, batch(b"b"))


def test_the_host_says_which_error_was_one_of_a_sync(tmp_path: Path) -> None:
    disk = SystemDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    file.append(b"x")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with patch("os.fdatasync", side_effect=full), pytest.raises(SyncFailed) as failure:
        file.sync()
    assert not is_full(failure.value)
    with patch("os.fsync", side_effect=full):
        with pytest.raises(SyncFailed):
            disk.sync_dir(str(tmp_path))
        with pytest.raises(SyncFailed):
            disk.write_atomically(str(tmp_path / "other"), b"x")
    assert is_full(full)


def test_a_log_of_a_failed_directory_can_be_closed() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, batch(b"a"))
    flush(log)
    log.health.failure = "broken"
    log.close(clean=True)


def test_a_full_directory_is_said_once_in_a_while_and_not_for_each_write() -> None:
    health, other = Health("/data/a"), Health("/data/b")
    notes = FullDiskWarnings()
    assert notes.due([health, other], 0.0) == []
    for _ in range(3):
        health.refusal(OSError(errno.ENOSPC, "no space left on device"))
    (line,) = notes.due([health, other], 1.0)
    assert "/data/a is full" in line
    assert "delete topics or records" in line
    health.refuse_clients()
    assert notes.due([health, other], 2.0) == []
    assert len(notes.due([health, other], 61.0)) == 1
    assert notes.due([health, other], 999.0) == []  # nothing was refused since


@pytest.mark.parametrize("refused", range(1, 13))
@pytest.mark.parametrize("how", ["retention", "truncation"])
def test_segments_leave_a_disk_without_room_for_their_new_names(how: str, refused: int) -> None:
    disk = TightDisk()
    size = len(batch(b"x"))
    log = open_log(disk, settings(segment_bytes=2 * size, retention_bytes=3 * size))
    for sequence in range(8):
        append(log, sent(7, sequence))
    flush(log)
    disk.refused = refused
    if how == "retention":
        retired = log.delete_old_segments(NOW, log.end)
        assert log.start > 0
    else:
        retired = log.truncate_to(1)
        assert log.end == 1
    assert len(contents(log)) == log.end - log.start
    assert log.health.is_online
    for segment in retired:
        segment.delete()
    log = reopen(disk, log, clean=False, recovery_point=log.trusted_end)
    assert not log.reports
    assert len(contents(log)) == log.end - log.start


def test_a_slice_that_cannot_be_read_takes_the_directory_offline() -> None:
    log = open_log(sim_disk())
    append(log, batch(b"a"))
    found = log.read(0, bytes_max=1000, upto=log.end)
    assert found.slice is not None
    assert len(log.load(found.slice)) == len(found.slice)
    failure = OSError(errno.EIO, os.strerror(errno.EIO))
    with (
        patch.object(SimFile, "pread", side_effect=failure),
        pytest.raises(StorageFailed) as refusal,
    ):
        log.load(found.slice)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.health.is_online


def test_a_page_that_fails_when_it_is_looked_at_is_cold(tmp_path: Path) -> None:
    """The read that follows reports it, and its directory is known there."""
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.append(b"x" * 10)
    for code, is_warm in ((errno.EIO, False), (errno.EOPNOTSUPP, True), (errno.EAGAIN, False)):
        with patch("os.preadv", side_effect=OSError(code, os.strerror(code))):
            assert file.is_warm(0, 10) is is_warm
            assert file.read_now(10, 0) == (b"x" * 10 if is_warm else None)
    assert bytes(file.read_now(10, 0) or b"") == b"x" * 10
    assert file.read_now(11, 0) is None, "less than it should be"
    file.close()


def test_a_short_write_is_finished(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    whole = os.pwritev
    with patch("os.pwritev", lambda fd, parts, at: whole(fd, [bytes(parts[0])[:3]], at)):
        file.append(b"abcdef", b"ghi")
    assert (file.size(), file.pread(100, 0)) == (9, b"abcdefghi")
    file.close()


@pytest.mark.parametrize("second", [OSError(errno.ENOSPC, "full"), [0]])
def test_a_write_that_does_not_fit_leaves_nothing_of_itself(tmp_path: Path, second: Any) -> None:
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.append(b"kept")
    whole = os.pwritev
    with (
        patch("os.pwritev", lambda fd, parts, at: whole(fd, [bytes(parts[0])[:3]], at)),
        patch("os.pwrite", side_effect=second),
        pytest.raises(OSError, match=r"full|No space") as full,
    ):
        file.append(b"abcdef")
    assert is_full(full.value)
    assert (file.size(), (tmp_path / "file").read_bytes()) == (4, b"kept")
    file.append(b"!")
    assert (tmp_path / "file").read_bytes() == b"kept!"
    file.close()


def test_a_short_read_goes_on_up_to_the_end(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.append(b"0123456789")
    whole = os.pread
    with patch("os.pread", lambda fd, count, at: whole(fd, min(count, 3), at)):
        assert file.pread(100, 1) == b"123456789"
    os.truncate(tmp_path / "file", 5)  # behind its back
    assert file.pread(100, 1) == b"1234"
    file.close()


def test_a_start_on_a_full_disk_does_without_a_snapshot_of_producers() -> None:
    disk = sim_disk()
    log = open_log(disk)
    append(log, sent(7, 0))
    flush(log)
    log.close(clean=False)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with patch("headwater.storage.producer_state.Snapshots.save", side_effect=full):
        log = open_log(disk)
    assert append(log, sent(7, 0)) == 0  # known from the log: a duplicate
    assert log.end == 1
    broken = OSError(errno.EIO, os.strerror(errno.EIO))
    log.close(clean=False)
    with (
        patch("headwater.storage.producer_state.Snapshots.save", side_effect=broken),
        pytest.raises(OSError, match="error"),
    ):
        open_log(disk)


def test_a_lookup_that_fails_takes_the_directory_offline() -> None:
    log = open_log(sim_disk(), settings(segment_bytes=200))
    for _ in range(5):
        append(log, batch(b"a" * 100))
    failure = OSError(errno.EIO, os.strerror(errno.EIO))
    with (
        patch("headwater.storage.segments.Segments.read", side_effect=failure),
        pytest.raises(StorageFailed),
    ):
        log.read(0, bytes_max=1000, upto=log.end)
    assert not log.health.is_online
