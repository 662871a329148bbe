"""A disk that is full: produce is refused, all else goes on, and room brings it back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.wire import Wire, batch, until
from headwater.errors import ErrorCode
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.processes import NodeProcess

DISK_MEGABYTES = 48
BALLAST_MEGABYTES = 16
VALUE = bytes(range(256)) * 2_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: a full disk needs a mount, and {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def node(tmp_path: Path, disk: Path) -> Iterator[NodeProcess]:
    made = NodeProcess(tmp_path / "output", "--data", str(disk / "data"))
    yield made
    made.kill()


def fill(wire: Wire, topic: str) -> int:
    """Produces until it is refused; how many were acknowledged."""
    for count in range(DISK_MEGABYTES * 3):
        answer = wire.produce(topic, batch([VALUE]))
        if answer.error_code:
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            return count
        assert answer.base_offset == count
    raise AssertionError("the disk took more than it has")


def test_a_full_disk_refuses_produce_and_serves_the_rest(node: NodeProcess, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_MEGABYTES << 20))
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("full")
        acknowledged = fill(wire, "full")
        assert acknowledged > 0
        assert wire.values("full") == [VALUE] * acknowledged
        assert wire.is_served()
        assert [about.name for about in wire.ask(MetadataRequest(topics=None)).topics] == ["full"]
        refused = wire.produce("full", batch([VALUE]))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ballast.unlink()

        def accepted() -> bool:
            return wire.produce("full", batch([VALUE])).error_code == 0

        until(accepted, "room to be used")
        assert wire.values("full") == [VALUE] * (acknowledged + 1)
    assert node.stop() == 0


def test_a_node_starts_on_a_full_disk(node: NodeProcess, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_MEGABYTES << 20))
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("full")
        acknowledged = fill(wire, "full")
    node.kill()
    started = time.monotonic()
    node.start()
    assert time.monotonic() - started < 20
    with Wire(node.address) as wire:
        assert wire.values("full") == [VALUE] * acknowledged
        answer = wire.produce("full", batch([VALUE]))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ballast.unlink()
        until(
            lambda: wire.produce("full", batch([VALUE])).error_code == 0,
            "room to be used",
        )
        assert wire.values("full") == [VALUE] * (acknowledged + 1)


def test_a_topic_made_on_a_full_disk_is_served_once_there_is_room(
    node: NodeProcess, disk: Path
) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_MEGABYTES << 20))
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("full")
        for size in (500_000, 50_000, 5_000, 500):
            while wire.produce("full", batch([bytes(size)])).error_code == 0:
                pass
        wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="late")]))
        ballast.unlink()
        wire.topic_id("late")
        assert wire.produce("late", batch([b"x"])).error_code == 0
        assert wire.values("late") == [b"x"]
    assert node.stop() == 0
