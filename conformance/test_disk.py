"""Kafka's DumpLogSegments reads our folders and has nothing to complain about."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.records import CODECS, create_topic, produce, sample_values
from harness.nodes import Node, run_java

DUMP = "org.apache.kafka.tools.DumpLogSegments"
# All that DumpLogSegments says when a file is not as it should be.
_COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|isvalid: false|corrupt|exception|out of order|not be found|"
    r"cannot|could not|couldn't|failed|insane|skipping|unknown",
    re.IGNORECASE,
)


# Kafka 4.3's tool counts from -1 in each file, so the first record of every segment but the first
# looks to it like a gap. That one line is not about the file; any other gap still is.
_FIRST_OF_A_SEGMENT = re.compile(
    r"^Non-consecutive offsets in \S*/0*(\d+)\.log\n  -1 is followed by \1$", re.MULTILINE
)


def dump(jars: Path, *arguments: str) -> str:
    """Runs DumpLogSegments and fails on the first line that is a complaint."""
    done = run_java(jars, DUMP, *arguments)
    printed = _FIRST_OF_A_SEGMENT.sub("", done.stdout + done.stderr)
    for line in printed.splitlines():
        # A payload is the user's and may say anything.
        told = line.partition(" payload: ")[0]
        assert not _COMPLAINTS.search(told), f"{' '.join(arguments)}: {line}"
    return done.stdout


def files(folder: Path, suffix: str) -> str:
    found = sorted(str(path) for path in folder.glob(f"*{suffix}"))
    assert found, f"no {suffix} in {folder}"
    return ",".join(found)


def filled(node: Node) -> Path:
    """Several segments with every codec, keys, headers and idempotent producers."""
    create_topic(node.bootstrap, "filled", segment_bytes="1048576", index_interval_bytes="4096")
    for codec in CODECS:
        produce(node.bootstrap, "filled", codec, sample_values(codec))
    for number in range(30):
        produce(node.bootstrap, "filled", "none", [bytes([97 + number % 26]) * 1000] * 100)
    return node.log_folder / "filled-0"


@pytest.fixture
def stopped(new_node: Callable[..., Node]) -> Node:
    node = new_node().start()
    filled(node)
    node.stop()
    return node


def test_every_record_is_read_deeply(stopped: Node, jars: Path) -> None:
    logs = files(stopped.log_folder / "filled-0", ".log")
    assert len(logs.split(",")) >= 3, "the topic was to have several segments"
    printed = dump(jars, "--deep-iteration", "--print-data-log", "--files", logs)
    expected = sum(len(sample_values(codec)) for codec in CODECS) + 3000
    offsets = [int(text) for text in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)]
    assert offsets == list(range(expected))
    assert {*re.findall(r"compresscodec: (\w+)", printed)} == set(CODECS)
    assert "isvalid: true" in printed


def test_indexes_are_sane_and_point_to_what_they_say(stopped: Node, jars: Path) -> None:
    folder = stopped.log_folder / "filled-0"
    indexes = f"{files(folder, '.index')},{files(folder, '.timeindex')}"
    printed = dump(jars, "--index-sanity-check", "--files", indexes)
    told = re.findall(r"passed sanity check|is empty\.$", printed, re.MULTILINE)
    assert len(told) == len(indexes.split(","))
    dump(jars, "--verify-index-only", "--files", indexes)
    printed = dump(jars, "--files", indexes)
    assert len(re.findall(r"^offset: \d+ position: \d+", printed, re.MULTILINE)) > 20
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", printed, re.MULTILINE)) > 20


def test_producer_snapshots_are_read(stopped: Node, jars: Path) -> None:
    snapshots = files(stopped.log_folder / "filled-0", ".snapshot")
    assert "producerId: " in dump(jars, "--files", snapshots)


def test_the_metadata_log_and_its_snapshots_are_decoded(stopped: Node, jars: Path) -> None:
    folder = stopped.log_folder / "__cluster_metadata-0"
    printed = dump(jars, "--cluster-metadata-decoder", "--files", files(folder, ".log"))
    for record in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "LeaderChange"):
        assert record in printed, record
    checkpoints = sorted(folder.glob("*.checkpoint"))
    bootstrap = stopped.log_folder / "bootstrap.checkpoint"
    for checkpoint in [*checkpoints, *([bootstrap] if bootstrap.exists() else [])]:
        printed = dump(jars, "--cluster-metadata-decoder", "--files", str(checkpoint))
        assert "SnapshotHeader" in printed, checkpoint
        assert "SnapshotFooter" in printed, checkpoint


def test_a_folder_is_as_good_after_kill_9_and_recovery(
    new_node: Callable[..., Node], jars: Path
) -> None:
    node = new_node().start()
    folder = filled(node)
    node.kill()
    node.start()
    produce(node.bootstrap, "filled", "lz4", sample_values("lz4"))
    node.stop()
    dump(jars, "--deep-iteration", "--files", files(folder, ".log"))
    indexes = f"{files(folder, '.index')},{files(folder, '.timeindex')}"
    dump(jars, "--index-sanity-check", "--files", indexes)
    dump(jars, "--files", indexes)
