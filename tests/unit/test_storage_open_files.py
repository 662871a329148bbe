"""Files that are deleted are closed as soon as their last reader is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.io.disk import SystemDisk
from headwater.storage import Log
from headwater.storage.segments import LogSlice
from tests.support.cleaners import clean
from tests.support.logs import NOW, TOPIC_ID, TP, append, batch, flush, settings

SIZE = len(batch(b"x"))


def open_log(folder: Path, **overrides: object) -> Log:
    log = Log.open(
        SystemDisk(),
        f"{folder}/{TP.topic}-{TP.partition}",
        TP,
        topic_id=TOPIC_ID,
        config=settings(segment_bytes=2 * SIZE, **overrides),
        now_ms=NOW,
    )
    for _ in range(6):
        append(log, batch(b"x"))
    flush(log)
    return log


def open_deleted(folder: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if path.startswith(str(folder)) and "deleted" in path:
            found.append(path)
    return found


def read(log: Log, offset: int) -> LogSlice:
    return log.read(offset, bytes_max=1 << 20, upto=log.end)


@pytest.mark.parametrize("how", ["retention", "truncation", "compaction"])
def test_a_segment_that_left_the_log_is_open_for_its_readers_only(tmp_path: Path, how: str) -> None:
    policy = "compact" if how == "compaction" else "delete"
    log = open_log(tmp_path, retention_ms=1000, cleanup_policy=policy)
    segments = list(log.segments)  # their holders must not keep the files open
    slices = [read(log, offset).slice for offset in (0, 2, 4)]
    first = slices[0]
    assert first is not None
    content = first.read()
    if how == "compaction":
        clean(SystemDisk(), log, now_ms=NOW)
    else:
        retired = (
            log.delete_old_segments(NOW + 5000, log.end)
            if how == "retention"
            else log.truncate_to(0)
        )
        for segment in retired:
            segment.delete()
    if how != "truncation":  # whose first segment stays, cut
        assert first.read() == content
        assert open_deleted(tmp_path)
    for each in slices:
        assert each is not None
        each.close()
    assert open_deleted(tmp_path) == []
    log.close(clean=False)
    assert segments


def test_a_slice_is_given_back_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first, second = read(log, 0).slice, read(log, 0).slice
    assert first is not None
    assert second is not None
    first.close()
    first.close()
    log.close(clean=False)
    assert len(second.read()) == 2 * SIZE
    second.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        second.read()


def test_a_flush_keeps_the_files_open_that_it_syncs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"x"))
    job = log.flush_job()
    assert job is not None
    log.close(clean=False)
    job.run()
    log.flushed(job)
    assert log.recovery_point == log.end
