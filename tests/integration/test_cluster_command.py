"""`headwater cluster` against a broker.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.wire import Wire, until
from headwater.testing import EmbeddedBroker, HeadwaterCluster
from tests.support.commands import Command


@pytest.fixture
def command(
    shared_broker: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", shared_broker.bootstrap)
    return Command("cluster", capsys)


def test_a_cluster_that_is_well_says_so(command: Command, wire: Wire, topic: str) -> None:
    wire.create_topic(topic, 3)
    told = command.json("status")
    assert (told["healthy"], told["nodes"], told["fenced"]) == (True, 1, [])
    assert (told["offline"], told["not_in_sync"]) == (0, 0)
    assert told["partitions"] >= 3
    assert "healthy               yes" in command("status")
    assert told["summary"].startswith("all is well: 1 node")
    assert (told["voters"], told["below_min_isr"]) == ([told["controller"]], 0)


def test_a_directory_that_is_offline_is_a_problem_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no directory")
    command = Command("cluster", capsys)
    with EmbeddedBroker(data=f"{tmp_path / 'good'},{broken}") as broker:
        here = ("--bootstrap", broker.bootstrap)
        told = command.json("status", *here, code=1)
        assert told["healthy"] is False
        (problem,) = told["problems"]
        assert problem["problem"] == f"node 1: directory {broken} is offline"
        assert "restart the node" in problem["action"]
        assert f"directory {broken} is offline: the node's log" in command("status", *here, code=1)
        # Waiting does not help, and ends with the same answer.
        assert "is offline" in command("status", *here, "--wait", "2", code=1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB; a user who may not mount one cannot fill a disk in a test."""
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_is_a_problem_until_there_is_room(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command("cluster", capsys)
    with EmbeddedBroker(data=small_disk / "data") as broker:
        here = ("--bootstrap", broker.bootstrap)
        command("status", *here)
        ballast = small_disk / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(4 << 20))
        said = command("status", *here, code=1)
        assert f"directory {small_disk / 'data'} is full: " in said
        assert "free some space" in said
        ballast.unlink()
        command("status", *here)


@pytest.mark.timeout(300)
@pytest.mark.headwater(topics={"orders": 3})
def test_what_is_wrong_with_three_nodes_is_one_sentence_with_a_remedy(
    headwater_cluster: HeadwaterCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command("cluster", capsys)
    here = ("--bootstrap", headwater_cluster.bootstrap)
    refusal = command("quorum", "remove", "3", "--yes", *here, code=1)
    assert "would join the voters again at once\n  stop it first" in refusal
    assert command.json("status", *here)["voters"] == [1, 2, 3]
    headwater_cluster.kill(3)
    for partition in range(3):
        headwater_cluster.wait_isr("orders", partition, nodes=[1, 2])
    told = command.json("status", *here, code=1)
    assert told["summary"].startswith("node 3 is down, so 3 partitions have a replica less")
    assert (told["fenced"], told["not_in_sync"], told["offline"]) == ([3], 3, 0)
    lines = Command("topic", capsys)("describe", "orders", *here).splitlines()
    assert sum("not in sync: 3" in line for line in lines) == 3
    headwater_cluster.kill(2)
    without_leader: dict[str, Any] = {}

    def has_no_leader() -> bool:
        nonlocal without_leader
        without_leader = command.json("status", *here, code=1)
        return bool(without_leader["voters"] == [])

    until(has_no_leader, "the last voter to notice that it is alone", seconds=120)
    assert without_leader["summary"].startswith("no controller leads the cluster")
    assert "start nodes 2 and 3 until more than half of the voters run" in without_leader["summary"]
    assert without_leader["controller"] is None


def test_waiting_ends_when_the_cluster_answers(capsys: pytest.CaptureFixture[str]) -> None:
    command = Command("cluster", capsys)
    with EmbeddedBroker() as broker:
        here = ("--bootstrap", broker.bootstrap)
        broker.stop()
        assert "is a node running there?" in command("status", *here, "--wait", "0.3", code=1)
        waiting = subprocess.Popen(
            [sys.executable, "-m", "headwater.cli.main", "cluster", "status", *here, "--wait", "60"]
        )
        broker.start()
        assert waiting.wait(timeout=90) == 0


@pytest.mark.parametrize("words", [("cluster", "status"), ("group", "list")])
def test_a_view_is_shown_again_until_ctrl_c(
    shared_broker: EmbeddedBroker, words: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "headwater.cli.main", *words, "--watch", "--interval", "0.1"]
    with subprocess.Popen(
        [*command, "--bootstrap", shared_broker.bootstrap], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        assert first
        assert any(line == first for line in watching.stdout)
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    assert watching.returncode == 0


def test_what_cannot_be_watched_is_refused_in_a_line(command: Command) -> None:
    assert "cannot be combined" in command("status", "--wait", "1", "--watch", code=2)
    assert "--interval needs --watch" in command("status", "--interval", "1", code=2)
    assert "more than 0 seconds" in command("status", "--watch", "--interval", "0", code=2)
    assert "expected seconds" in command("status", "--wait", "soon", code=2)


def test_nodes_are_shown_with_what_they_have(
    command: Command, shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic, 3)
    (node,) = command.json("nodes")
    assert (node["address"], node["state"]) == (shared_broker.bootstrap, "up")
    assert node["quorum"] == "leader"
    assert node["leads"] == node["replicas"] >= 3
    assert shared_broker.bootstrap in command("nodes")


def test_the_quorum_is_shown_with_its_lag(command: Command) -> None:
    told = command.json("quorum")
    (replica,) = told["replicas"]
    assert (replica["node"], replica["role"], replica["lag"]) == (told["leader"], "leader", 0)
    assert "leader" in command("quorum")


def test_features_are_shown_and_checked(command: Command) -> None:
    told = {each["feature"]: each for each in command.json("features")}
    least, most = told["metadata.version"]["supported"]
    assert least <= told["metadata.version"]["level"] <= most
    assert "metadata.version" in command("features")
    said = command("features", "--set", "group.version=99", "--dry-run", code=1)
    assert "group.version" in said
    (refused,) = command.json("features", "--set", "group.version=99", "--dry-run", code=1)
    assert not refused["changed"]
    level = told["group.version"]["level"]
    assert "could be at level" in command(
        "features", "--set", f"group.version={level}", "--dry-run"
    )


def test_leaders_are_elected(command: Command, wire: Wire, topic: str) -> None:
    wire.create_topic(topic, 2)
    assert "done: 2 partitions" in command("elect", "--topic", topic)
    (told,) = command.json("elect", "--topic", f"{topic}:1")
    assert (told["topic"], told["partition"], told["done"]) == (topic, 1, True)
    assert "there is no topic" in command("elect", "--topic", f"{topic}-none", code=1)
    assert "there is no partition" in command("elect", "--topic", f"{topic}:7", code=1)
    assert "add --yes" in command("elect", "--unclean", code=2)


def test_moves_are_shown_before_they_start(
    command: Command, wire: Wire, topic: str, tmp_path: Path
) -> None:
    wire.create_topic(topic, 2)
    said = command("reassign", "--topic", f"{topic}:1", "--to", "1")
    assert "nothing has changed yet" in said
    (row,) = command.json("reassign", "--topic", f"{topic}:1", "--to", "1")
    assert (row["partition"], row["replicas"], row["to"]) == (1, [1], [1])
    path = tmp_path / "moves.json"
    path.write_text(f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "replicas": [1]}}]}}')
    (row,) = command.json("reassign", "--file", str(path))
    assert (row["partition"], row["to"]) == (0, [1])


def test_moves_are_started_where_the_cluster_can(command: Command, wire: Wire, topic: str) -> None:
    wire.create_topic(topic)
    asked = ("reassign", "--topic", topic, "--to", "1", "--yes")
    try:
        said = command(*asked)
    except AssertionError:
        said = command(*asked, code=1)
        assert "AlterPartitionReassignments" in said
        assert "the cluster does not support this" in said
        return
    assert "1 move started" in said
    assert command("reassign") == "no partition is being moved\n"
    assert "no partition is being moved" in command("reassign", "--cancel", code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("features", "--set", "group.version"),
        ("features", "--set", "group.version=high"),
        ("features", "--set", "a=1", "--downgrade", "--unsafe-downgrade"),
        ("elect", "--topic", "t:x"),
        ("reassign", "--topic", "t"),
        ("reassign", "--to", "1"),
        ("reassign", "--topic", "t", "--to", "one"),
        ("reassign", "--topic", "t", "--to", "1", "--cancel"),
        ("reassign", "--topic", "t", "--to", "1", "--file", "moves.json"),
        ("reassign", "--file", "no/such/file"),
    ],
)
def test_invalid_arguments_are_a_usage_error(command: Command, arguments: tuple[str, ...]) -> None:
    command(*arguments, code=2)
