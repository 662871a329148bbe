"""Log directories: whose they are, what they remember, and all logs in them."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Disk
from headwater.io.disk import SystemDisk
from headwater.io.memory import MemoryDisk
from headwater.model import METADATA_TOPIC, ZERO_ID, TopicPartition, id_text
from headwater.storage import DirectoryRefused, Log, LogDirs
from headwater.storage.checkpoints import (
    CheckpointCorrupt,
    read_offsets,
    read_topic_id,
    write_offsets,
)
from headwater.storage.dump import dump, verify
from headwater.storage.log_dirs import lock_directories, read_meta_properties
from headwater.storage.names import marked_dir_name, parse_dir_name
from headwater.testing.sim.crash import after_power_cut
from headwater.testing.sim.disk import SimDisk
from tests.support.logs import NOW, TOPIC_ID, append, batch, contents, flush, settings

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


class Clock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return NOW


ids = itertools.count(1)


def new_id() -> bytes:
    return next(ids).to_bytes(16, "big")


def config_of(topic: str) -> TopicConfig:
    return settings()


def open_dirs(
    disk: Disk, *dirs: str, cluster_id: str | None = "cluster", node_id: int = 1
) -> LogDirs:
    logs = LogDirs.open(
        disk,
        dirs or ("/a", "/b"),
        node_id=node_id,
        clock=Clock(),
        new_id=new_id,
        cluster_id=cluster_id,
        owner=f"node {node_id}, pid 77",
    )
    logs.load(config_of)
    return logs


# Names and small files


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-3", (TopicPartition("orders", 3), "")),
        ("a-b.c_d-12", (TopicPartition("a-b.c_d", 12), "")),
        ("orders-3.0123abcd-delete", (TopicPartition("orders", 3), "-delete")),
        ("orders-3.0123abcd-future", (TopicPartition("orders", 3), "-future")),
        ("orders-3.0123abcd-stray", (TopicPartition("orders", 3), "-stray")),
        ("orders", None),
        ("-3", None),
        ("orders-x", None),
        ("orders-delete", None),
    ],
)
def test_directory_names(name: str, parsed: object) -> None:
    assert parse_dir_name(name) == parsed


def test_a_directory_on_its_way_out_has_a_name_that_file_systems_take() -> None:
    tp = TopicPartition("t" * 249, 1000)
    name = marked_dir_name(tp, bytes(16), "-delete")
    assert len(name) == 255
    assert name.endswith(f"-1000.{'0' * 32}-delete")


def test_a_checkpoint_has_kafkas_text() -> None:
    disk = MemoryDisk()
    write_offsets(disk, "/checkpoint", {TP: 12, TopicPartition("a.b", 7): 0})
    assert disk.read("/checkpoint") == b"0\n2\norders 0 12\na.b 7 0\n"
    assert read_offsets(disk, "/checkpoint") == {TP: 12, TopicPartition("a.b", 7): 0}
    assert read_offsets(disk, "/none") == {}


def test_a_checkpoint_that_was_made_and_never_written_is_empty() -> None:
    disk = MemoryDisk()
    disk.write_atomically("/checkpoint", b"")
    assert read_offsets(disk, "/checkpoint") == {}


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\nt 0 1\n", b"0\n1\nt 0\n", b"0\n1\nt x 1\n", b"?"]
)
def test_a_malformed_checkpoint_is_said_to_be_so(content: bytes) -> None:
    disk = MemoryDisk()
    disk.write_atomically("/checkpoint", content)
    with pytest.raises(CheckpointCorrupt):
        read_offsets(disk, "/checkpoint")


def test_meta_properties_are_kafkas() -> None:
    disk = MemoryDisk()
    open_dirs(disk, "/a")
    found = read_meta_properties(disk, "/a")
    assert found is not None
    assert found.directory_id is not None
    assert (found.cluster_id, found.node_id) == ("cluster", 1)
    lines = disk.read("/a/meta.properties").decode().splitlines()
    assert set(lines[1:]) == {
        "version=1",
        "node.id=1",
        "cluster.id=cluster",
        f"directory.id={id_text(found.directory_id)}",
    }


def test_meta_properties_of_version_0_are_read_and_given_a_directory_id() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/a")
    disk.write_atomically("/a/meta.properties", b"#\n#Mon\nversion=0\nbroker.id=1\ncluster.id=x\n")
    logs = open_dirs(disk, "/a", cluster_id=None)
    assert logs.cluster_id == "x"
    assert logs.directories[0].id != ZERO_ID


# Taking a directory


def test_a_directory_of_another_node_or_cluster_is_refused() -> None:
    disk = MemoryDisk()
    open_dirs(disk).close(clean=True)
    with pytest.raises(DirectoryRefused, match="node 1, not to 2"):
        open_dirs(disk, node_id=2)
    with pytest.raises(DirectoryRefused, match="cluster cluster, not to other"):
        open_dirs(disk, cluster_id="other")


def test_a_directory_in_use_names_its_holder(tmp_path: Path) -> None:
    disk = SystemDisk()
    logs = open_dirs(disk, f"{tmp_path}/a")
    with pytest.raises(DirectoryRefused, match="in use by node 1, pid 77"):
        open_dirs(disk, f"{tmp_path}/a")
    logs.close(clean=True)
    open_dirs(disk, f"{tmp_path}/a").close(clean=True)


def test_a_directory_that_cannot_be_used_is_offline_and_the_others_serve(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    logs = open_dirs(SystemDisk(), f"{tmp_path}/file/a", f"{tmp_path}/b")
    assert [directory.path for directory in logs.offline()] == [f"{tmp_path}/file/a"]
    assert logs.create(TP, TOPIC_ID, settings()).path == f"{tmp_path}/b/orders-0"
    logs.close(clean=True)
    with pytest.raises(DirectoryRefused, match="no log directory can be used"):
        open_dirs(SystemDisk(), f"{tmp_path}/file/a")


def test_directories_opened_before_the_cluster_has_an_id_are_named_later() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a", cluster_id=None)
    assert logs.cluster_id is None
    logs.identify(1, "fresh")
    found = read_meta_properties(disk, "/a")
    assert found is not None
    assert found.cluster_id == "fresh"
    assert logs.directories[0].id == found.directory_id


# Logs


def test_new_logs_go_where_the_fewest_are() -> None:
    logs = open_dirs(MemoryDisk())
    paths = [logs.create(TopicPartition("t", i), TOPIC_ID, settings()).path for i in range(4)]
    assert paths == ["/a/t-0", "/b/t-1", "/a/t-2", "/b/t-3"]
    assert logs.create(TopicPartition("t", 4), TOPIC_ID, settings(), "/b").path == "/b/t-4"
    with pytest.raises(ApiError) as raised:
        logs.create(TopicPartition("t", 5), TOPIC_ID, settings(), "/c")
    assert raised.value.code == ErrorCode.LOG_DIR_NOT_FOUND


def test_partition_metadata_is_kafkas() -> None:
    disk = MemoryDisk()
    open_dirs(disk, "/a").create(TP, TOPIC_ID, settings())
    content = disk.read("/a/orders-0/partition.metadata")
    assert content == b"version: 0\ntopic_id: " + id_text(TOPIC_ID).encode()
    assert read_topic_id(disk, "/a/orders-0") == TOPIC_ID


@pytest.mark.parametrize("clean", [True, False])
def test_logs_are_found_again(clean: bool) -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk)
    for tp in (TP, OTHER):
        log = logs.create(tp, TOPIC_ID, settings())
        append(log, batch(b"a", b"b"), epoch=3)
    logs.close(clean=clean, high_watermarks={TP: 2, OTHER: 1}, broker_epoch=42)
    logs = open_dirs(disk)
    assert {log.tp: (log.end, log.topic_id, log.latest_epoch) for log in logs.all()} == {
        TP: (2, TOPIC_ID, 3),
        OTHER: (2, TOPIC_ID, 3),
    }
    first = logs.directories[0]
    assert first.was_clean is clean
    assert first.broker_epoch_at_stop == (42 if clean else -1)
    assert logs.high_watermarks == ({TP: 2, OTHER: 1} if clean else {})
    assert not disk.exists("/a/.kafka_cleanshutdown")


def test_logs_may_be_closed_side_by_side_before_the_rest() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk)
    for tp in (TP, OTHER):
        append(logs.create(tp, TOPIC_ID, settings()), batch(b"a"))
    for job in logs.closing_jobs():
        job()
    logs.close(clean=True, broker_epoch=42)
    logs = open_dirs(disk)
    assert all(directory.was_clean for directory in logs.directories)
    assert [(log.end, log.recovery_point) for log in logs.all()] == [(1, 1), (1, 1)]


def test_the_marker_of_a_clean_stop_is_kafkas() -> None:
    disk = MemoryDisk()
    open_dirs(disk).close(clean=True, broker_epoch=42)
    assert disk.read("/a/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'


def test_a_start_in_the_middle_of_a_segment_is_remembered() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings())
    append(log, batch(b"a"))
    append(log, batch(b"b"))
    log.delete_records_before(1)
    logs.checkpoint_job({TP: 2}).run()
    assert disk.read("/a/log-start-offset-checkpoint") == b"0\n1\norders 0 1\n"
    assert disk.read("/a/replication-offset-checkpoint") == b"0\n1\norders 0 2\n"
    logs.close(clean=False)
    found = open_dirs(disk, "/a").get(TP)
    assert found is not None
    assert contents(found) == [(1, b"b")]


def test_truncation_lowers_the_recovery_point_on_disk_at_once() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings())
    for _ in range(4):
        log.roll(NOW)
        append(log, batch(b"a"))
    flush(log)
    logs.checkpoint_job().run()
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {TP: 3}
    log.truncate_to(2)
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {TP: 2}


def test_a_checkpoint_job_that_a_truncation_overtook_writes_nothing() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings())
    for _ in range(4):
        log.roll(NOW)
        append(log, batch(b"a"))
    flush(log)
    late = logs.checkpoint_job()
    log.truncate_to(2)
    late.run()
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {TP: 2}
    log.truncate_to(1)
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {TP: 1}


def test_a_compacted_log_that_could_not_be_loaded_keeps_its_gaps_when_it_is_opened_later() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings(cleanup_policy="compact"))
    for value in (b"a", b"b", b"c"):
        log.roll(NOW)
        append(log, batch(value))
    flush(log)
    log.mark_cleaned(2)
    logs.cleaned_job(log).run()
    logs.close(clean=False)
    disk.remove("/a/orders-0/00000000000000000001.log")  # compaction has left nothing of it
    logs = LogDirs.open(disk, ["/a"], node_id=1, clock=Clock(), new_id=new_id, cluster_id="cluster")
    log = logs.create(TP, TOPIC_ID, settings(cleanup_policy="compact"))
    assert contents(log) == [(0, b"a"), (2, b"c")]
    assert log.cleaned_to == 2


def test_a_log_that_could_not_be_loaded_is_opened_where_it_is() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk)
    append(logs.create(TP, TOPIC_ID, settings(), "/b"), batch(b"a"))
    logs.close(clean=False)
    logs = LogDirs.open(
        disk, ["/a", "/b"], node_id=1, clock=Clock(), new_id=new_id, cluster_id="cluster"
    )
    log = logs.create(TP, TOPIC_ID, settings())
    assert log.path == "/b/orders-0"
    assert contents(log) == [(0, b"a")]


def with_an_unopened_log(disk: MemoryDisk, *, clean: bool) -> LogDirs:
    """A run in which the log of TP could not be opened, and another one could."""
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings(cleanup_policy="compact"))
    for value in (b"a", b"b", b"c"):
        log.roll(NOW)
        append(log, batch(value))
    flush(log)
    log.delete_records_before(1)
    log.mark_cleaned(1)
    logs.cleaned_job(log).run()
    logs.checkpoint_job({TP: 2}).run()
    logs.close(clean=clean, high_watermarks={TP: 2})
    logs = LogDirs.open(disk, ["/a"], node_id=1, clock=Clock(), new_id=new_id, cluster_id="cluster")
    assert [job.tp for job in logs.load_jobs(config_of)] == [TP]  # and none of them has room
    return logs


def test_the_checkpoints_keep_the_lines_of_logs_that_were_not_opened() -> None:
    disk = MemoryDisk()
    logs = with_an_unopened_log(disk, clean=False)
    other = TopicPartition("payments", 0)
    log = logs.create(other, new_id(), settings())
    log.roll(NOW)
    append(log, batch(b"x"))
    flush(log)
    log.mark_cleaned(0)
    logs.cleaned_job(log).run()
    logs.checkpoint_job({other: 1}).run()
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {other: 0, TP: 2}
    assert read_offsets(disk, "/a/log-start-offset-checkpoint") == {TP: 1}
    assert read_offsets(disk, "/a/replication-offset-checkpoint") == {other: 1, TP: 2}
    assert read_offsets(disk, "/a/cleaner-offset-checkpoint") == {other: 0, TP: 1}
    log.truncate_to(0)
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {other: 0, TP: 2}
    opened = logs.create(TP, TOPIC_ID, settings(cleanup_policy="compact"))
    opened.truncate_to(1)
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint")[TP] == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_is_not_clean_for_a_log_that_was_not_opened_after_a_crash(clean: bool) -> None:
    disk = MemoryDisk()
    logs = with_an_unopened_log(disk, clean=clean)
    logs.close(clean=True)
    assert disk.exists("/a/.kafka_cleanshutdown") is clean


def test_the_loop_and_a_worker_never_write_a_checkpoint_at_once(tmp_path: Path) -> None:
    """They would share a temporary file, and whoever is first to rename it takes the other's."""

    class SlowDisk(SystemDisk):
        def write_atomically(self, path: str, data: bytes) -> None:
            assert path not in writing
            writing.add(path)
            is_writing.set()
            never.wait(0.05)
            super().write_atomically(path, data)
            writing.remove(path)

    writing: set[str] = set()
    is_writing, never = threading.Event(), threading.Event()
    logs = open_dirs(SlowDisk(), str(tmp_path))
    log = logs.create(TP, TOPIC_ID, settings())
    for _ in range(4):
        log.roll(NOW)
        append(log, batch(b"a"))
    flush(log)
    is_writing.clear()
    with ThreadPoolExecutor(1) as workers:
        late = workers.submit(logs.checkpoint_job().run)
        is_writing.wait()
        log.truncate_to(2)
        late.result()
    path = f"{tmp_path}/recovery-point-offset-checkpoint"
    assert read_offsets(SystemDisk(), path) == {TP: 2}
    logs.close(clean=False)


def test_a_new_directory_is_there_after_a_power_cut_with_all_above_it() -> None:
    clock: Any = Clock()
    for seed in range(20):
        disk = SimDisk(clock, Random(seed), 1 << 20)
        (taken,) = lock_directories(disk, ["/srv/streams/node-1"], "node 1")
        taken.identify(1, "cluster", lambda: bytes(16))
        after = after_power_cut(disk, Random(seed))
        found = read_meta_properties(after, "/srv/streams/node-1")
        assert found is not None, seed
        assert found.cluster_id == "cluster"


def test_an_active_segment_is_looked_at_whole_until_it_is_closed_and_flushed() -> None:
    """No earlier flush has made durable the index entries that a close adds."""
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings())
    append(log, batch(b"a"))
    flush(log)
    assert (log.recovery_point, log.trusted_end) == (1, 0)
    log.roll(NOW)
    append(log, batch(b"b"))
    assert log.trusted_end == 0
    flush(log)
    assert (log.recovery_point, log.trusted_end) == (2, 1)
    logs.close(clean=True)
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {TP: 2}


def test_a_broken_checkpoint_makes_more_be_checked_and_is_said() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    append(logs.create(TP, TOPIC_ID, settings()), batch(b"a"))
    logs.close(clean=False)
    disk.write_atomically("/a/recovery-point-offset-checkpoint", b"garbage")
    logs = open_dirs(disk, "/a")
    found = logs.get(TP)
    assert found is not None
    assert (found.end, found.recovery_point) == (1, 0)
    assert len(logs.directories[0].notes) == 1


def test_a_deleted_log_is_gone_at_once_and_its_files_later() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings())
    append(log, batch(b"a"))
    read = log.read(0, bytes_max=100, upto=1)
    job = logs.delete(TP)
    assert logs.get(TP) is None
    assert not disk.exists("/a/orders-0")
    assert disk.exists(f"{job.path}/00000000000000000000.log")
    assert logs.create(TP, new_id(), settings()).end == 0
    job.run()
    assert not disk.exists(job.path)
    assert read.slice is not None
    assert len(read.slice.read()) == read.size


def test_a_deletion_that_a_stop_interrupted_is_finished() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    logs.create(TP, TOPIC_ID, settings())
    path = logs.delete(TP).path
    logs.close(clean=True)
    logs = open_dirs(disk, "/a")
    assert logs.all() == []
    assert [job.path for job in logs.deletions] == [path]


def test_a_stray_log_is_kept_aside() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    logs.create(TP, TOPIC_ID, settings())
    path = logs.set_aside(TP)
    assert path.endswith("-stray")
    logs.close(clean=True)
    assert open_dirs(disk, "/a").all() == []
    assert disk.exists(path)


def test_a_log_moves_to_another_directory() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk)
    log = logs.create(TP, TOPIC_ID, settings())
    append(log, batch(b"a"), epoch=2)
    future = logs.start_move(TP, "/b")
    assert logs.get(TP) is log
    assert logs.future(TP) is future
    read = log.read(0, bytes_max=1000, upto=1).slice
    assert read is not None
    future.append_as_follower(read.read(), now_ms=NOW)
    assert logs.finish_move(TP) is future
    assert logs.get(TP) is future
    assert future.path == "/b/orders-0"
    append(future, batch(b"b"), epoch=2)
    logs.close(clean=True)
    found = open_dirs(disk).get(TP)
    assert found is not None
    assert (found.path, contents(found)) == ("/b/orders-0", [(0, b"a"), (1, b"b")])


def two_logs(disk: MemoryDisk) -> tuple[LogDirs, TopicPartition]:
    """A log in each of two directories; that of TP is in /a."""
    logs, other = open_dirs(disk), TopicPartition("payments", 0)
    append(logs.create(TP, TOPIC_ID, settings(), "/a"), batch(b"a"))
    append(logs.create(other, new_id(), settings(), "/b"), batch(b"b"))
    return logs, other


def test_a_log_that_cannot_be_loaded_takes_its_directory_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    logs, other = two_logs(disk)
    logs.close(clean=False)
    whole = MemoryDisk.list

    def fails_there(disk: MemoryDisk, path: str) -> list[str]:
        if path == "/a/orders-0":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return whole(disk, path)

    monkeypatch.setattr(MemoryDisk, "list", fails_there)
    logs = open_dirs(disk)
    assert logs.get(TP) is None
    assert logs.get(other) is not None
    assert [directory.path for directory in logs.offline()] == ["/a"]


def test_a_log_that_cannot_be_closed_leaves_its_directory_without_the_marker() -> None:
    """The next start has to check the part that was not written."""
    disk = MemoryDisk()
    logs, _ = two_logs(disk)
    log = logs.get(TP)
    assert log is not None
    whole = Log.seal

    def full_there(each: Log) -> None:
        if each is log:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
        whole(each)

    with patch.object(Log, "seal", full_there):
        logs.close(clean=True)
    assert not disk.exists("/a/.kafka_cleanshutdown")
    assert disk.exists("/b/.kafka_cleanshutdown")
    again = open_dirs(disk)
    assert contents_of(again, TP) == [(0, b"a")]


def test_a_marker_that_does_not_fit_is_noted_and_the_stop_goes_on() -> None:
    disk = MemoryDisk()
    logs, _ = two_logs(disk)
    whole = MemoryDisk.write_atomically

    def is_full(disk: MemoryDisk, path: str, data: bytes) -> None:
        if path.endswith(".kafka_cleanshutdown"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        whole(disk, path, data)

    with patch.object(MemoryDisk, "write_atomically", is_full):
        logs.close(clean=True)
    assert [len(directory.notes) for directory in logs.directories] == [1, 1]
    assert contents_of(open_dirs(disk), TP) == [(0, b"a")]  # released, and complete


def test_a_marker_that_cannot_be_read_has_no_epoch() -> None:
    disk = MemoryDisk()
    two_logs(disk)[0].close(clean=True, broker_epoch=5)
    disk.write_atomically("/a/.kafka_cleanshutdown", b"{")
    logs = open_dirs(disk)
    assert [(d.was_clean, d.broker_epoch_at_stop) for d in logs.directories] == [
        (True, -1),
        (True, 5),
    ]


def test_the_log_of_a_deleted_topic_of_the_same_name_is_not_taken_over() -> None:
    disk = MemoryDisk()
    two_logs(disk)[0].close(clean=False)
    logs = LogDirs.open(
        disk, ["/a", "/b"], node_id=1, clock=Clock(), new_id=new_id, cluster_id="cluster"
    )
    log = logs.create(TP, new_id(), settings())
    assert (log.path, log.end) == ("/a/orders-0", 0)
    (old,) = logs.take_deletions()
    assert old.path.endswith("-delete")
    old.run()
    assert [name for name in disk.list("/a") if name.startswith("orders")] == ["orders-0"]


def contents_of(logs: LogDirs, tp: TopicPartition) -> list[tuple[int, bytes | None]]:
    log = logs.get(tp)
    assert log is not None
    return contents(log)


def test_the_same_log_in_two_directories_is_refused() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    logs.create(TP, TOPIC_ID, settings())
    logs.close(clean=True)
    logs = open_dirs(disk, "/b")
    logs.create(TP, TOPIC_ID, settings())
    logs.close(clean=True)
    with pytest.raises(DirectoryRefused, match="both"):
        open_dirs(disk, "/a", "/b")


def test_the_metadata_log_is_the_quorums() -> None:
    disk = MemoryDisk()
    open_dirs(disk, "/a").close(clean=True)
    disk.make_dirs(f"/a/{METADATA_TOPIC}-0")
    assert open_dirs(disk, "/a").all() == []


def test_a_log_found_without_an_id_can_be_given_one() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    logs.create(TP, TOPIC_ID, settings())
    logs.close(clean=False)
    disk.write_atomically("/a/orders-0/partition.metadata", b"")
    logs = open_dirs(disk, "/a")
    found = logs.get(TP)
    assert found is not None
    assert found.topic_id == ZERO_ID
    logs.assign_topic_id(TP, TOPIC_ID)
    assert read_topic_id(disk, "/a/orders-0") == TOPIC_ID


def test_a_failed_directory_takes_its_logs_with_it() -> None:
    logs = open_dirs(MemoryDisk())
    logs.create(TP, TOPIC_ID, settings(), "/a")
    logs.create(OTHER, TOPIC_ID, settings(), "/b")
    with pytest.raises(ApiError), logs.find("/a").health.errors():
        raise OSError(5, "Input/output error")
    assert logs.drop_offline() == [TP]
    assert [log.tp for log in logs.all()] == [OTHER]
    assert logs.create(TP, TOPIC_ID, settings()).path == "/b/orders-0"


# Looking at the files


def test_everything_written_is_dumped_and_in_order() -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings(index_interval_bytes=0))
    for value in (b"a", b"b", b"c"):
        append(log, batch(value, producer_id=5, producer_epoch=0, base_sequence=log.end))
    logs.close(clean=True)
    rows = list(dump(disk, "/a", records=True))
    assert [row["value"] for row in rows if "value" in row] == [b"a", b"b", b"c"]
    assert [row["base_offset"] for row in rows if "base_offset" in row] == [0, 1, 2]
    assert [row["last_sequence"] for row in rows if "last_sequence" in row] == [2]
    assert [row["topic_id"] for row in rows if "topic_id" in row] == [id_text(TOPIC_ID)]
    assert list(verify(disk, "/a")) == []


@pytest.mark.parametrize(
    ("file", "position"),
    [(".log", 100), (".index", 3), (".timeindex", 5), (".snapshot", 12)],
)
def test_damage_is_found(file: str, position: int) -> None:
    disk = MemoryDisk()
    logs = open_dirs(disk, "/a")
    log = logs.create(TP, TOPIC_ID, settings(index_interval_bytes=0))
    for value in (b"a", b"b", b"c"):
        append(log, batch(value, producer_id=5, producer_epoch=0, base_sequence=log.end))
    logs.close(clean=True)
    name = next(name for name in disk.list("/a/orders-0") if name.endswith(file))
    handle = disk.open(f"/a/orders-0/{name}")
    byte = handle.pread(1, position)[0]
    handle.pwrite(bytes([byte ^ 0x10]), position)
    handle.close()
    found = list(verify(disk, "/a/orders-0"))
    assert found
    assert found[0].path == f"/a/orders-0/{name}"
