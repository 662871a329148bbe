"""`headwater start --nodes N` as a user runs it: processes, lines, signals, exit codes."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Self

import pytest

from harness.wire import Wire
from tests.support.processes import HEADWATER

PATIENCE_SECONDS = 60.0


class Started:
    """The command in a process group of its own; its lines are read as they come."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [str(HEADWATER), "start", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._new: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
            if stream is not None
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        for raw in stream:
            self._new.put(raw.decode(errors="replace").rstrip("\n"))

    def wait_line(self, pattern: str, *, since: int = 0) -> str:
        """Returns the next line that matches, from the given number of lines on."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for line in self.lines[since:]:
            if re.search(pattern, line):
                return line
        while True:
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line {pattern!r} in\n" + "\n".join(self.lines)) from None
            self.lines.append(line)
            if re.search(pattern, line):
                return line

    def ready(self) -> list[str]:
        return self.wait_line("^ready: ").split()[1].split(",")

    def pid_of(self, node: int) -> int:
        """Returns the process of the node's last start."""
        pattern = rf"\[node {node}\].* pid=(\d+)"
        found = [match for line in self.lines if (match := re.search(pattern, line))]
        return int(found[-1][1])

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_SECONDS)
        for reader in self._readers:
            reader.join(PATIENCE_SECONDS)
        while not self._new.empty():
            self.lines.append(self._new.get())
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()  # its nodes notice, and stop
        self.wait()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


@pytest.fixture(params=[1, 3])
def count(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def options(folder: Path, count: int) -> list[str]:
    return ["--nodes", str(count), "--data", str(folder), "--listen", "127.0.0.1:0"]


def test_one_line_says_when_all_serve_and_a_second_start_continues(
    tmp_path: Path, count: int
) -> None:
    data = tmp_path / "cluster"
    with Started(*options(data, count)) as started:
        addresses = started.ready()
        assert len(addresses) == count
        for address in addresses:
            with Wire(address) as wire:
                described = wire.describe_cluster()
                assert f"cluster={described.cluster_id}" in started.wait_line("^ready: ")
        started.signal(signal.SIGINT)
        assert started.wait() == 0
        assert all(f"[node {node}]" in "\n".join(started.lines) for node in range(1, count + 1))
    for node in range(1, count + 1):
        assert (data / f"node-{node}" / ".kafka_cleanshutdown").exists()
    with Started("--nodes", str(count), "--data", str(data)) as started:
        assert started.ready() == addresses
        assert f"cluster={described.cluster_id}" in started.wait_line("^ready: ")
        started.signal(signal.SIGTERM)
        assert started.wait() == 0


def test_only_a_second_ctrl_c_cuts_the_stop_short(tmp_path: Path) -> None:
    with Started(*options(tmp_path, 3)) as started:
        started.ready()
        pids = [started.pid_of(node) for node in (1, 2, 3)]
        os.kill(pids[2], signal.SIGSTOP)  # it does not answer when it is asked to leave
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            started.signal(number)
        os.kill(pids[2], signal.SIGCONT)
        assert started.wait() == 0
    for node in (1, 2, 3):
        assert (tmp_path / f"node-{node}" / ".kafka_cleanshutdown").exists()
    with Started("--nodes", "3", "--data", str(tmp_path)) as started:
        started.ready()
        pids = [started.pid_of(node) for node in (1, 2, 3)]
        os.kill(pids[2], signal.SIGSTOP)
        while started.process.poll() is None:  # one that comes too early is one with the next
            started.signal(signal.SIGINT)
            time.sleep(0.02)
        assert started.wait() == 130
        for pid in pids:
            wait_until_gone(pid)


def test_a_node_that_dies_is_started_again_if_wanted(tmp_path: Path, count: int) -> None:
    with Started(*options(tmp_path, count), "--restart") as started:
        addresses = started.ready()
        before = started.pid_of(1)
        os.kill(before, signal.SIGKILL)
        line = started.wait_line("was killed by SIGKILL")
        assert f"node 1 (process {before})" in line
        assert addresses[0] in started.wait_line("node 1 serves again")
        assert started.pid_of(1) != before
        with Wire(addresses[0]) as wire:
            assert wire.is_served()
        started.signal(signal.SIGTERM)
        assert started.wait() == 0


def test_the_end_of_the_last_node_ends_the_command(tmp_path: Path) -> None:
    with Started(*options(tmp_path, 1)) as started:
        started.ready()
        os.kill(started.pid_of(1), signal.SIGKILL)
        started.wait_line("node 1 .* was killed by SIGKILL; the others go on")
        assert started.wait() == 1
        assert any("no node is left" in line for line in started.lines)


def test_nodes_stop_when_the_command_is_killed(tmp_path: Path, count: int) -> None:
    with Started(*options(tmp_path, count)) as started:
        started.ready()
        pids = [started.pid_of(node) for node in range(1, count + 1)]
        started.signal(signal.SIGKILL)
        for pid in pids:
            wait_until_gone(pid)
    assert (tmp_path / "node-1" / ".kafka_cleanshutdown").exists()


def test_a_cluster_in_memory_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Started("--nodes", "1", "--memory", "--listen", "127.0.0.1:0") as started:
        (address,) = started.ready()
        assert started.wait_line("^ready: ").endswith(" data=memory")
        with Wire(address) as wire:
            assert wire.is_served()
        started.signal(signal.SIGINT)
        assert started.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_settings_apply_to_each_node(tmp_path: Path) -> None:
    file = tmp_path / "shared.properties"
    file.write_text("num.partitions=7\nlog.retention.hours=3\n")
    given = ["--config", str(file), "--set", "num.partitions=5"]
    with Started(*options(tmp_path / "data", 1), *given) as started:
        started.ready()
        line = started.wait_line("starting headwater")
        assert " num.partitions=5" in line
        assert " log.retention.hours=3" in line


def refused(*arguments: str) -> str:
    done = subprocess.run(
        [str(HEADWATER), "start", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert "--nodes 0: expected 1 to" in refused("--nodes", "0", "--data", data)
    assert "--restart: expected --nodes" in refused("--restart", "--data", data)
    assert "leave out --data" in refused("--nodes", "2", "--memory", "--data", data)
    assert "node.id=3: --nodes sets it" in refused("--nodes", "2", "--set", "node.id=3")
    assert "unknown setting" in refused("--nodes", "2", "--data", data, "--set", "no.such=1")
    assert not Path(data).exists()


def test_one_node_and_a_cluster_do_not_share_a_directory(tmp_path: Path) -> None:
    with Started(*options(tmp_path, 1)) as started:
        started.ready()
    line = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert "has a cluster of 1 nodes" in line
    assert "--nodes 1" in line
    assert "cluster of 1 nodes, not of 3" in refused("--nodes", "3", "--data", str(tmp_path))


def test_a_node_that_cannot_start_ends_the_command(tmp_path: Path) -> None:
    with Started(*options(tmp_path, 1)) as started:
        started.ready()
        started.signal(signal.SIGTERM)
        assert started.wait() == 0
    (tmp_path / "node-1" / "meta.properties").write_text("cluster.id=x\nnode.id=9\nversion=1\n")
    with Started("--nodes", "1", "--data", str(tmp_path)) as started:
        assert started.wait() == 1
        text = "\n".join(started.lines)
        assert "belongs to node 9" in text
        assert "before all nodes were ready" in text
