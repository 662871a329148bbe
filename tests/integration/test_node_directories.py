"""The directories of a node: taken, formatted and opened, in this order, wherever they are."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness.wire import Wire, batch
from headwater.blocking import Admin
from headwater.client.admin import broker_config
from headwater.client.errors import ClientError
from headwater.errors import ErrorCode
from headwater.io.disk import SystemFile
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker
from tests.support.processes import HEADWATER, PATIENCE_SECONDS

BY_NAME = 12  # the last version of Produce and Fetch that has the names of topics


def start(data: Path) -> subprocess.Popen[str]:
    command = [str(HEADWATER), "start", "--listen", "127.0.0.1:0", "--data", str(data)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_of_two_first_starts_on_one_directory_one_formats_it_and_the_other_is_told(
    tmp_path: Path,
) -> None:
    for attempt in range(3):
        data = tmp_path / f"data {attempt}"
        both = [start(data) for _ in range(2)]
        refused = _ended_first(both)
        running = both[1 - both.index(refused)]
        _, said = refused.communicate(timeout=PATIENCE_SECONDS)
        assert refused.returncode == 1
        assert "is in use by" in said
        assert "formatted" not in said
        assert running.stdout is not None
        ready = running.stdout.readline()
        assert ready.startswith("ready: ")
        cluster = ready.partition(" cluster=")[2].split()[0]
        assert f"cluster.id={cluster}" in (data / "meta.properties").read_text()
        running.terminate()
        _, said = running.communicate(timeout=PATIENCE_SECONDS)
        assert running.returncode == 0
        assert said.count("formatted") == 1


def _ended_first(both: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """The one that does not run; the other waits for SIGTERM."""
    while True:
        for process in both:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            return process


def test_the_metadata_log_may_be_outside_of_the_log_directories(
    make_broker: MakeBroker, tmp_path: Path, topic: str
) -> None:
    metadata, data = tmp_path / "metadata", tmp_path / "data"
    broker = make_broker({"metadata.log.dir": f"{metadata}/"}, data=data)
    assert (metadata / "__cluster_metadata-0").is_dir()
    assert not (data / "__cluster_metadata-0").exists()
    for folder in (metadata, data):
        assert (folder / "meta.properties").exists()
        assert (folder / ".lock").exists()
    with Wire(broker.bootstrap) as wire:
        wire.topic_id(topic)
        assert wire.produce(topic, batch([b"1"])).error_code == 0
    assert (data / f"{topic}-0").is_dir()
    command = [str(HEADWATER), "start", "--data", str(tmp_path / "other")]
    second = subprocess.run(
        [*command, "--listen", "127.0.0.1:0", "--set", f"metadata.log.dir={metadata}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert second.returncode == 1
    assert f"{metadata} is in use" in second.stderr
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        assert wire.values(topic) == [b"1"]
    assert not [line for line in broker.log_lines if " ERROR " in line]


def test_partitions_of_a_directory_that_is_offline_are_offline_and_not_empty(
    tmp_path: Path, topic: str
) -> None:
    """An empty log in another directory would hide the records, and the node would not start again
    with both."""
    good, broken, away = tmp_path / "good", tmp_path / "broken", tmp_path / "away"
    data = f"{good},{broken}"
    with EmbeddedBroker(data=data, topics={topic: 2}) as broker, Wire(broker.bootstrap) as wire:
        for partition in range(2):
            assert wire.produce(topic, batch([b"1"]), partition=partition).error_code == 0
    (lost,) = (int(found.name[-1]) for found in broken.glob(f"{topic}-*"))
    broken.rename(away)
    broken.write_text("not a directory")
    with EmbeddedBroker(data=data) as broker, Wire(broker.bootstrap) as wire:
        for partition, code in ((lost, ErrorCode.KAFKA_STORAGE_ERROR), (1 - lost, ErrorCode.NONE)):
            told = wire.fetch(topic, partition=partition, version=BY_NAME)
            assert told.error_code == code
            result = wire.produce(topic, batch([b"2"]), partition=partition, version=BY_NAME)
            assert result.error_code == code
        wire.create_topic(f"{topic}-new", 2)  # nothing of it can be in the other directory
        assert wire.produce(f"{topic}-new", batch([b"1"]), partition=1).error_code == 0
    broken.unlink()
    away.rename(broken)
    with EmbeddedBroker(data=data) as broker, Wire(broker.bootstrap) as wire:
        assert wire.values(topic, partition=lost) == [b"1"]
        assert wire.values(topic, partition=1 - lost) == [b"1", b"2"]


def test_a_partition_of_a_failed_directory_has_no_leader_until_it_is_repaired(
    tmp_path: Path, topic: str
) -> None:
    good, broken, away = tmp_path / "good", tmp_path / "broken", tmp_path / "away"
    data = f"{good},{broken}"
    read = SystemFile.pread

    def fails_there(file: SystemFile, count: int, offset: int) -> bytes:
        if file.path.startswith(f"{broken}/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)
        return read(file, count, offset)

    with EmbeddedBroker(data=data, topics={topic: 2}) as broker, Wire(broker.bootstrap) as wire:
        for partition in range(2):
            assert wire.produce(topic, batch([b"1"]), partition=partition).error_code == 0
        (lost,) = (int(found.name[-1]) for found in broken.glob(f"{topic}-*"))
        with (
            patch.object(SystemFile, "read_now", lambda *_: None),
            patch.object(SystemFile, "pread", fails_there),
        ):
            wire.fetch(topic, partition=lost, version=BY_NAME)
        told = _leaders_once(wire, topic, {lost: -1, 1 - lost: 1})
        assert told[lost].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert told[lost].offline_replicas == [1]
        assert told[1 - lost].offline_replicas == []
        # No empty log of it in another directory, which would hide the records.
        for api in (wire.fetch, lambda *a, **k: wire.produce(a[0], batch([b"2"]), **k)):
            result = api(topic, partition=lost, version=BY_NAME)
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [found.name for found in good.glob(f"{topic}-*")] == [f"{topic}-{1 - lost}"]
    assert sum("has failed" in line for line in broker.log_lines) == 1
    # It is offline at the next start, too, and comes back with the one after it.
    broken.rename(away)
    broken.write_text("not a directory")
    with EmbeddedBroker(data=data) as broker, Wire(broker.bootstrap) as wire:
        _leaders_once(wire, topic, {lost: -1, 1 - lost: 1})
    broken.unlink()
    away.rename(broken)
    with EmbeddedBroker(data=data) as broker, Wire(broker.bootstrap) as wire:
        _leaders_once(wire, topic, {0: 1, 1: 1})
        assert wire.values(topic, partition=lost) == [b"1"]


def test_replicas_without_a_directory_in_the_metadata_are_lost_with_one_that_is_offline(
    tmp_path: Path, topic: str
) -> None:
    """As those of a node that had not told its controller where they are."""
    good, broken, away = tmp_path / "good", tmp_path / "broken", tmp_path / "away"
    data = f"{good},{broken}"
    with (
        patch("headwater.broker.directory_assignments.DirectoryAssignments.compare"),
        EmbeddedBroker(data=data, topics={topic: 2}) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        for partition in range(2):
            assert wire.produce(topic, batch([b"1"]), partition=partition).error_code == 0
    (lost,) = (int(found.name[-1]) for found in broken.glob(f"{topic}-*"))
    broken.rename(away)
    broken.write_text("not a directory")
    with EmbeddedBroker(data=data) as broker, Wire(broker.bootstrap) as wire:
        _leaders_once(wire, topic, {lost: -1, 1 - lost: 1})
    broken.unlink()
    away.rename(broken)
    with EmbeddedBroker(data=data) as broker, Wire(broker.bootstrap) as wire:
        _leaders_once(wire, topic, {0: 1, 1: 1})
        assert wire.values(topic, partition=lost) == [b"1"]


def _leaders_once(wire: Wire, topic: str, wanted: dict[int, int]) -> dict[int, Any]:
    """The partitions in the metadata, as soon as they have these leaders."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    for _ in range(round(PATIENCE_SECONDS / 0.05)):
        (found,) = wire.ask(request).topics
        partitions = {each.partition_index: each for each in found.partitions}
        if {index: each.leader_id for index, each in partitions.items()} == wanted:
            return partitions
        time.sleep(0.05)
    raise AssertionError(f"expected {wanted}, got {partitions}")


def test_a_read_that_fails_takes_the_directory_offline_and_no_other_partition(
    tmp_path: Path, topic: str
) -> None:
    good, broken = tmp_path / "good", tmp_path / "broken"
    read = SystemFile.pread

    def fails_there(file: SystemFile, count: int, offset: int) -> bytes:
        if file.path.startswith(f"{broken}/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), file.path)
        return read(file, count, offset)

    with (
        EmbeddedBroker(data=f"{good},{broken}", topics={topic: 2}) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        for partition in range(2):
            assert wire.produce(topic, batch([b"1"]), partition=partition).error_code == 0
        (lost,) = (int(found.name[-1]) for found in broken.glob(f"{topic}-*"))
        with (
            patch.object(SystemFile, "read_now", lambda *_: None),
            patch.object(SystemFile, "pread", fails_there),
        ):
            told = wire.fetch(topic, partition=lost, version=BY_NAME)
        assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (told.high_watermark, bytes(told.records or b"")) == (-1, b"")
        for partition, code in ((lost, ErrorCode.KAFKA_STORAGE_ERROR), (1 - lost, ErrorCode.NONE)):
            result = wire.produce(topic, batch([b"2"]), partition=partition, version=BY_NAME)
            assert result.error_code == code
        assert wire.values(topic, partition=1 - lost) == [b"1", b"2"]
    assert not [line for line in broker.log_lines if "Traceback" in line]


def test_a_cordoned_directory_gets_no_new_replicas(tmp_path: Path, topic: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    settings = {"cordoned.log.dirs": str(other), "node.id": "1"}
    with EmbeddedBroker(settings, data=f"{one},{other}", topics={topic: 4}) as broker:
        with Wire(broker.bootstrap) as wire:
            for partition in range(4):
                assert wire.produce(topic, batch([b"1"]), partition=partition).error_code == 0
        assert len(list(one.glob(f"{topic}-*"))) == 4
        with Admin(broker.bootstrap) as admin:

            def can_create() -> bool:
                """Asks the controller, which learns of it with the next heartbeat."""
                try:
                    admin.create_topic(f"{topic}-new", partitions=1, validate_only=True)
                except ClientError as refusal:
                    return refusal.code != ErrorCode.INVALID_REPLICATION_FACTOR
                return True

            admin.alter_config(broker_config(1), {"cordoned.log.dirs": "*"})
            while can_create():
                time.sleep(0.02)
            admin.alter_config(broker_config(1), {"cordoned.log.dirs": str(one)})
            while not can_create():
                time.sleep(0.02)
            admin.create_topic(f"{topic}-new", partitions=2)
        with Wire(broker.bootstrap) as wire:
            assert wire.produce(f"{topic}-new", batch([b"1"]), partition=1).error_code == 0
        assert list(other.glob(f"{topic}-new-1"))
