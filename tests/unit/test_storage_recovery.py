"""A log after a crash: what is scanned, what is cut, what is made anew."""

from __future__ import annotations

import pytest

from headwater import _core
from headwater.io.memory import MemoryDisk
from headwater.storage import Log, Origin, RecoveryReport
from headwater.storage.dump import verify
from tests.support.logs import (
    NOW,
    PATH,
    TP,
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

SIZE = len(batch(b"x" * 10))


def filled(disk: MemoryDisk, count: int, **overrides: object) -> Log:
    overrides.setdefault("index_interval_bytes", 100)
    log = open_log(disk, config=settings(**overrides))
    for i in range(count):
        append(log, batch(b"x" * 10, timestamp=NOW + i))
    return log


def name(base: int, suffix: str = ".log") -> str:
    return f"{PATH}/{base:020d}{suffix}"


def overwrite(disk: MemoryDisk, path: str, position: int, data: bytes) -> None:
    file = disk.open(path)
    file.pwrite(data, position)
    file.close()


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(i, b"x" * 10) for i in range(count)]


@pytest.mark.parametrize("torn", [0, 1, 11, 61, SIZE - 1])
def test_a_torn_tail_is_cut_and_said_so(torn: int) -> None:
    disk = MemoryDisk()
    log = filled(disk, 10)
    disk.truncate(name(0), SIZE * 9 + torn)
    log = reopen(disk, log, clean=False)
    assert contents(log) == expected(9)
    assert [(r.truncated_bytes, r.at_offset) for r in log.reports] == ([(torn, 9)] if torn else [])
    assert append(log, batch(b"next")) == 9


@pytest.mark.parametrize("garbage", [b"\0" * 5000, b"\xff" * 100, b"junk", batch(b"x")[:-1]])
def test_garbage_after_the_last_batch_is_cut(garbage: bytes) -> None:
    disk = MemoryDisk()
    log = filled(disk, 3)
    overwrite(disk, name(0), SIZE * 3, bytes(garbage))
    log = reopen(disk, log, clean=False)
    assert contents(log) == expected(3)
    assert log.size == disk.size(name(0)) == SIZE * 3


def test_a_flipped_bit_ends_the_log_there_and_drops_later_segments() -> None:
    disk = MemoryDisk()
    log = filled(disk, 10, segment_bytes=SIZE * 4)
    overwrite(disk, name(4), SIZE + SIZE - 1, b"!")
    log = reopen(disk, log, clean=False)
    assert contents(log) == expected(5)
    assert [segment.base for segment in log.segments] == [0, 4]
    assert log.reports == [
        RecoveryReport(TP, SIZE * 3, "crc", 5),
        RecoveryReport(TP, SIZE * 2, "after the end of what was recovered", 8),
    ]
    assert not disk.exists(name(8))


def test_an_offset_that_goes_back_ends_the_log() -> None:
    disk = MemoryDisk()
    log = filled(disk, 3)
    overwrite(disk, name(0), SIZE * 3, bytes(batch(b"again", base_offset=1)))
    log = reopen(disk, log, clean=False)
    assert contents(log) == expected(3)
    assert len(log.reports) == 1


def test_segments_before_the_recovery_point_are_not_read() -> None:
    disk = MemoryDisk()
    log = filled(disk, 10, segment_bytes=SIZE * 4)
    flush(log)
    overwrite(disk, name(0), SIZE - 1, b"!")  # a scan would cut everything here
    log = reopen(disk, log, clean=False)
    assert log.end == 10
    assert log.reports == []


def test_a_clean_start_scans_nothing() -> None:
    disk = MemoryDisk()
    log = filled(disk, 10)
    flush(log)
    log.close(clean=True)
    overwrite(disk, name(0), SIZE - 1, b"!")
    log = open_log(disk, clean=True)
    assert (log.end, log.recovery_point) == (10, 10)
    assert log.reports == []


def test_a_segment_that_lost_all_since_a_flush_ends_the_log() -> None:
    disk = MemoryDisk()
    log = filled(disk, 2, segment_bytes=SIZE * 4)
    flush(log)
    for i in range(2, 6):
        append(log, batch(b"x" * 10, timestamp=NOW + i))
    disk.truncate(name(0), SIZE * 2)  # ends with a batch, so nothing in it looks torn
    log = reopen(disk, log, clean=False)
    assert contents(log) == expected(2)
    assert len(log.reports) == 1


def test_logs_that_were_compacted_may_have_gaps_between_segments() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for offset in (0, 10):
        log.append_as_follower(batch(b"x" * 10, base_offset=offset), now_ms=NOW)
        log.roll(NOW)
    disk.rename(name(1), name(10))
    for suffix in (".index", ".timeindex"):
        disk.rename(name(1, suffix), name(10, suffix))
    log = reopen(disk, log, clean=False, cleaned_to=10)
    assert [offset for offset, _ in contents(log)] == [0, 10]
    assert log.reports == []


def test_a_cut_within_a_gap_leaves_none_between_segments() -> None:
    """A leader's compacted log has gaps, and a follower may be cut within one."""
    disk = MemoryDisk()
    log = open_log(disk)
    log.append_as_follower(batch(b"a", base_offset=0), now_ms=NOW)
    log.append_as_follower(batch(b"b", base_offset=10), now_ms=NOW)
    log.truncate_to(5)
    assert log.end == 5
    log.roll(NOW)
    append(log, batch(b"c"))
    log.roll(NOW)
    append(log, batch(b"d"))
    assert [segment.base for segment in log.segments] == [0, 1, 6]
    log = reopen(disk, log, clean=False, recovery_point=0)
    assert log.reports == []
    assert contents(log) == [(0, b"a"), (5, b"c"), (6, b"d")]


def index_bytes(disk: MemoryDisk) -> dict[str, bytes]:
    return {
        file: disk.read(f"{PATH}/{file}")
        for file in disk.list(PATH)
        if file.endswith(("index", ".snapshot"))
    }


def test_recovery_makes_the_indexes_that_appending_made() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=settings(segment_bytes=2000, index_interval_bytes=150))
    for i in range(60):
        append(log, sent(7, i, timestamp=NOW + i * (-1) ** i))
        append(log, sent(8, i, timestamp=NOW + i, transactional=True))
        data = marker(8, abort=i % 2 == 0, timestamp=NOW + i)
        log.append_as_leader(data, epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.close(clean=True)
    made = index_bytes(disk)
    for file in made:
        if file.endswith("index"):
            disk.truncate(f"{PATH}/{file}", 0)
        elif file != f"{log.end:020d}.snapshot":
            disk.remove(f"{PATH}/{file}")
    log = open_log(disk, log.config, clean=False)
    log.close(clean=True)
    again = index_bytes(disk)
    assert {k: v for k, v in again.items() if k.endswith("index")} == {
        k: v for k, v in made.items() if k.endswith("index")
    }
    assert again[f"{log.end:020d}.snapshot"] == made[f"{log.end:020d}.snapshot"]
    assert list(verify(disk, PATH)) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd", "nonsense"])
def test_an_insane_index_is_made_anew_even_after_a_clean_stop(suffix: str, damage: str) -> None:
    disk = MemoryDisk()
    log = filled(disk, 30, segment_bytes=SIZE * 10)
    log.close(clean=True)
    good = index_bytes(disk)
    if damage == "missing":
        disk.remove(name(10, suffix))
    elif damage == "odd":
        overwrite(disk, name(10, suffix), disk.size(name(10, suffix)), b"abc")
    else:
        overwrite(disk, name(10, suffix), 0, b"\xff" * disk.size(name(10, suffix)))
    log = open_log(disk, log.config, clean=True)
    assert contents(log) == expected(30)
    assert index_bytes(disk) == good


def test_an_index_without_a_segment_goes() -> None:
    disk = MemoryDisk()
    log = filled(disk, 1)
    disk.write_atomically(name(77, ".index"), b"12345678")
    reopen(disk, log, clean=False)
    assert not disk.exists(name(77, ".index"))


def test_a_damaged_producer_snapshot_is_replaced_by_an_older_one_and_batches() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, sent(7, 0))
    log.roll(NOW)
    append(log, sent(7, 1))
    flush(log)
    log.close(clean=True)
    overwrite(disk, name(2, ".snapshot"), 20, b"!")
    log = open_log(disk, clean=True)
    append(log, sent(7, 2))
    assert log.append_as_leader(sent(7, 2), epoch=0, now_ms=NOW).duplicate


def test_a_snapshot_from_before_a_gap_is_not_believed() -> None:
    """On a full disk retention goes on although no snapshot can be written. What an older one says
    would be out of date, and its producer would be refused; it may go on if it is not known."""
    disk = MemoryDisk()
    log = open_log(disk)
    for data in (sent(7, 0), sent(7, 1), sent(7, 2), sent(8, 0)):
        append(log, data)
        log.roll(NOW)
    flush(log)
    for gone in (name(0), name(1), name(2), name(3, ".snapshot"), name(4, ".snapshot")):
        disk.remove(gone)
    log = reopen(disk, log, clean=False, recovery_point=4)
    assert (log.start, log.end) == (3, 4)
    append(log, sent(7, 3))


def test_snapshots_that_belong_to_nothing_go() -> None:
    disk = MemoryDisk()
    log = filled(disk, 4, segment_bytes=SIZE * 2)
    for offset in (1, 3, 99):
        disk.write_atomically(name(offset, ".snapshot"), log.producers.render())
    log = reopen(disk, log, clean=False)
    assert [file for file in disk.list(PATH) if file.endswith(".snapshot")] == [
        "00000000000000000002.snapshot",
        "00000000000000000004.snapshot",
    ]


def test_what_was_on_its_way_out_is_removed() -> None:
    disk = MemoryDisk()
    log = filled(disk, 4, segment_bytes=SIZE * 2, retention_bytes=SIZE)
    log.delete_old_segments(NOW, 4)
    log = reopen(disk, log, clean=False)
    assert not [file for file in disk.list(PATH) if file.endswith(".deleted")]
    assert (log.start, log.end) == (2, 4)


def test_a_half_made_compacted_segment_goes_and_a_whole_one_takes_over() -> None:
    disk = MemoryDisk()
    log = filled(disk, 6, segment_bytes=SIZE * 2)
    log.close(clean=True)
    # Offsets 0 to 3 were compacted to one segment, whole; 4 and 5 were being compacted.
    data = bytearray(batch(b"y" * 10, timestamp=NOW))
    _core.restamp(data, base_offset=3, leader_epoch=0)
    disk.write_atomically(name(0, ".log.swap"), bytes(data))
    disk.write_atomically(name(4, ".log.cleaned"), b"half")
    log = open_log(disk, settings(segment_bytes=SIZE * 2, cleanup_policy="compact"), clean=True)
    assert contents(log) == [(3, b"y" * 10), (4, b"x" * 10), (5, b"x" * 10)]
    assert not [file for file in disk.list(PATH) if file.endswith((".swap", ".cleaned"))]


def test_a_swap_above_an_unfinished_one_goes_too() -> None:
    disk = MemoryDisk()
    log = filled(disk, 4, segment_bytes=SIZE * 2)
    log.close(clean=True)
    disk.write_atomically(name(0, ".log.cleaned"), b"half")
    disk.write_atomically(name(2, ".log.swap"), b"of a step that had not finished")
    log = open_log(disk, log.config, clean=True)
    assert contents(log) == expected(4)


def test_a_log_whose_segments_were_removed_begins_at_its_start() -> None:
    disk = MemoryDisk()
    log = filled(disk, 4)
    log.close(clean=False)
    disk.remove(name(0))
    log = open_log(disk, start=3)
    assert (log.start, log.end) == (3, 3)
    assert append(log, batch(b"x")) == 3


def test_a_batch_larger_than_the_scans_chunk_is_recovered() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=settings(max_message_bytes=20_000_000))
    append(log, batch(b"small"))
    append(log, batch(b"L" * 9_000_000))
    append(log, batch(b"small"))
    log = reopen(disk, log, clean=False)
    assert [len(value or b"") for _, value in contents(log)] == [5, 9_000_000, 5]
    assert log.reports == []


def test_recovery_leaves_a_log_that_kafkas_rules_find_in_order() -> None:
    disk = MemoryDisk()
    log = filled(disk, 50, segment_bytes=SIZE * 7)
    log = reopen(disk, log, clean=False)
    log.close(clean=True)
    assert list(verify(disk, PATH)) == []
