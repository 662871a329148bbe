"""Replicas in the directories of several nodes: the same up to the high watermark, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import _core
from headwater.cli.main import main
from headwater.io.disk import SystemDisk
from headwater.storage.replicas import Comparison, compare

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABQ"


def batch(base: int, *values: bytes, epoch: int = 0) -> bytes:
    records = [(None, value, (), 1000) for value in values]
    data = bytearray(_core.encode(records, base_offset=base))
    data[12:16] = epoch.to_bytes(4, "big")  # the leader's, outside the checksum
    return bytes(data)


def node(
    folder: Path,
    *segments: tuple[int, bytes],
    high_watermark: int | None = 4,
    epochs: str = "0\n1\n0 0\n",
    topic_id: str = TOPIC_ID,
    cleaned_to: int | None = None,
    recovery_point: int | None = 9,
) -> str:
    """A log directory with one partition, orders-0."""
    log = folder / "orders-0"
    log.mkdir(parents=True)
    for base, data in segments:
        for suffix in (".index", ".timeindex"):
            (log / f"{base:020d}{suffix}").write_bytes(b"")
        (log / f"{base:020d}.log").write_bytes(data)
    (log / "leader-epoch-checkpoint").write_text(epochs)
    (log / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    (folder / "meta.properties").write_text("version=1\n")
    for name, offset in (
        ("replication-offset-checkpoint", high_watermark),
        ("cleaner-offset-checkpoint", cleaned_to),
        ("recovery-point-offset-checkpoint", recovery_point),
    ):
        if offset is not None:
            (folder / name).write_text(f"0\n1\norders 0 {offset}\n")
    return str(folder)


def compared(*paths: str) -> Comparison:
    (found,) = compare(SystemDisk(), paths)
    return found


WHOLE = batch(0, b"a", b"b") + batch(2, b"c", b"d")


def test_the_same_bytes_in_other_segments_are_the_same(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, WHOLE))
    two = node(tmp_path / "2", (0, batch(0, b"a", b"b")), (2, batch(2, b"c", b"d")))
    found = compared(one, two)
    assert (found.findings, found.notes) == ((), ())
    assert (found.compared_from, found.compared_to) == (0, 4)


def test_behind_the_high_watermark_replicas_may_differ(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, WHOLE + batch(4, b"old", epoch=1)))
    two = node(tmp_path / "2", (0, WHOLE + batch(4, b"new", epoch=2)), high_watermark=3)
    assert compared(one, two).findings == ()


def test_a_replica_that_lags_is_a_note(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, WHOLE))
    two = node(tmp_path / "2", (0, batch(0, b"a", b"b")), high_watermark=2)
    found = compared(one, two)
    assert found.findings == ()
    assert found.compared_to == 2
    (note,) = found.notes
    assert "ends at 2, the high watermark is 4" in note


def test_records_of_a_leader_that_was_replaced_are_a_difference(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, batch(0, b"a", b"b") + batch(2, b"c", b"d", epoch=3)))
    two = node(tmp_path / "2", (0, batch(0, b"a", b"b") + batch(2, b"x", b"y", epoch=1)))
    (finding,) = compared(one, two).findings
    assert finding.path == f"{two}/orders-0"
    assert "offsets 2 to 3 are not the bytes" in finding.what
    assert "of leader epoch 1, the others of 3" in finding.what


def test_a_damaged_file_is_told_from_one_that_is_right(tmp_path: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[-1] ^= 1
    one = node(tmp_path / "1", (0, WHOLE))
    two = node(tmp_path / "2", (0, bytes(damaged)))
    (finding,) = compared(one, two).findings
    assert "its checksum is wrong, the other's is right" in finding.what


def test_records_that_are_missing_are_named(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, WHOLE + batch(4, b"e")), high_watermark=5)
    two = node(tmp_path / "2", (0, batch(0, b"a", b"b") + batch(4, b"e")), high_watermark=5)
    (finding,) = compared(one, two).findings
    assert "has a batch with offsets 4 to 4 where" in finding.what


def test_epochs_that_begin_elsewhere_are_a_difference(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, WHOLE), epochs="0\n2\n0 0\n4 2\n")
    two = node(tmp_path / "2", (0, WHOLE), epochs="0\n2\n0 0\n5 1\n")
    (finding,) = compared(one, two).findings
    assert finding.what.endswith("5 at 1; there 4 at 2")


def test_epochs_that_a_crash_kept_from_the_file_are_no_difference(tmp_path: Path) -> None:
    log = batch(0, b"a", b"b") + batch(2, b"c", b"d", epoch=1)
    one = node(tmp_path / "1", (0, log), epochs="0\n2\n0 0\n1 2\n")
    two = node(tmp_path / "2", (0, log), recovery_point=2)
    assert compared(one, two).findings == ()
    (tmp_path / "2" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    (finding,) = compared(one, two).findings
    assert "leader epochs begin elsewhere" in finding.what


def test_another_topic_of_the_same_name_is_not_compared(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, WHOLE))
    two = node(tmp_path / "2", (0, batch(0, b"x")), topic_id="AAAAAAAAAAAAAAAAAAAABg")
    (finding,) = compared(one, two).findings
    assert "not the same topic" in finding.what


def test_what_each_node_has_compacted_by_itself_is_left_out(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, batch(1, b"b") + batch(2, b"c", b"d")), cleaned_to=2)
    two = node(tmp_path / "2", (0, WHOLE))
    found = compared(one, two)
    assert found.findings == ()
    assert found.compared_from == 2
    assert "compacted up to 2" in found.notes[0]


def test_without_a_high_watermark_nothing_is_compared(tmp_path: Path) -> None:
    one = node(tmp_path / "1", (0, WHOLE), high_watermark=None)
    two = node(tmp_path / "2", (0, batch(0, b"x")), high_watermark=None)
    assert "nothing can be compared" in compared(one, two).notes[0]


def test_the_command_compares_directories_of_nodes_and_of_partitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = node(tmp_path / "1", (0, WHOLE))
    two = node(tmp_path / "2", (0, batch(0, b"a", b"b") + batch(2, b"x", b"y", epoch=1)))
    assert main(["log", "verify", one, one]) == 0
    assert main(["log", "verify", one, two]) == 1
    assert "leader epoch 1" in capsys.readouterr().out
    assert main(["log", "verify", f"{one}/orders-0", f"{two}/orders-0"]) == 1
