"""`headwater start` as a user runs it: a process, a line, signals, exit codes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.wire import Closed, Wire, batch, until
from headwater.errors import ErrorCode
from tests.support.processes import HEADWATER, PATIENCE_SECONDS, NodeProcess


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    made = NodeProcess(tmp_path)
    yield made
    made.kill()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(HEADWATER), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_one_line_says_where_it_listens_and_stderr_is_quiet(node: NodeProcess) -> None:
    node.start()
    with Wire(node.address) as wire:
        cluster = wire.describe_cluster().cluster_id
    assert node.ready_line == f"ready: {node.address} node=1 cluster={cluster} data={node.data}\n"
    assert node.stop() == 0
    assert node.process is not None
    assert node.process.stdout is not None
    assert node.process.stdout.read() == b""
    assert node.complaints() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.usefixtures("hangups_count")
def test_a_signal_stops_it_cleanly_and_nothing_is_lost(
    node: NodeProcess, number: signal.Signals
) -> None:
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("kept")
        for value in range(100):
            assert wire.produce("kept", batch([b"%d" % value])).error_code == 0
        node.signal(number)
        assert node.wait() == 0
    node.start()
    with Wire(node.address) as wire:
        assert wire.values("kept") == [b"%d" % value for value in range(100)]
    assert node.stop() == 0
    assert node.complaints() == []


def test_under_nohup_it_outlives_its_terminal(node: NodeProcess) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its children inherit that
    try:
        node.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    node.signal(signal.SIGHUP)
    with Wire(node.address) as wire:
        assert wire.describe_cluster().cluster_id
    assert node.stop() == 0


def test_answers_that_are_owed_leave_before_it_ends(node: NodeProcess) -> None:
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("owed")
        sent = 200
        for number in range(sent):
            request, version = wire.produce_request("owed", batch([b"%d" % number]), version=12)
            wire.send(request, version)
        node.signal(signal.SIGTERM)
        acknowledged = 0
        try:
            while acknowledged < sent:
                answer = wire.receive().responses[0].partition_responses[0]
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    break  # served after it had resigned: the client is told to go elsewhere
                assert (answer.error_code, answer.base_offset) == (0, acknowledged)
                acknowledged += 1
        except (Closed, OSError):
            pass
        assert node.wait() == 0
    node.start()
    with Wire(node.address) as wire:
        kept = wire.values("owed")
    assert kept[:acknowledged] == [b"%d" % number for number in range(acknowledged)]


def test_a_node_in_memory_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    with NodeProcess(tmp_path / "output", "--memory") as node:
        assert node.ready_line.endswith(" data=memory\n")
        with Wire(node.address) as wire:
            wire.topic_id("t")
            assert wire.produce("t", batch([b"x"])).error_code == 0
            assert wire.values("t") == [b"x"]
        assert node.stop() == 0
    assert list(empty.iterdir()) == []


def test_with_no_data_option_the_data_is_kept_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(
        [str(HEADWATER), "start", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert line.endswith(f" data={tmp_path / 'headwater-data'}\n")
    assert (tmp_path / "headwater-data" / "meta.properties").exists()


def test_a_second_node_on_the_same_directory_says_who_holds_it(node: NodeProcess) -> None:
    node.start()
    done = run("start", "--listen", "127.0.0.1:0", "--data", str(node.data))
    assert (done.returncode, done.stdout) == (1, "")
    assert str(node.pid) in done.stderr
    assert str(node.data) in done.stderr
    assert "another directory" in done.stderr
    assert "Traceback" not in done.stderr
    with Wire(node.address) as wire:
        assert wire.is_served()


def test_a_port_in_use_is_named_with_a_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("start", "--listen", address, "--data", str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{address} is in use" in done.stderr
    assert "--listen" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    done = run("start", "--data", str(tmp_path), "--set", "log.segment.bytes=many")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("headwater start: log.segment.bytes='many': expected")
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    wanted = tmp_path / "file" / "data"
    done = run("start", "--listen", "127.0.0.1:0", "--data", str(wanted))
    assert (done.returncode, done.stdout) == (1, "")
    assert str(wanted) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_of_kafka_that_does_nothing_yet_is_one_warning(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, settings={"zookeeper.connect": "localhost:2181"}) as node:
        assert node.stop() == 0
        (line,) = node.complaints()
        assert " WARN " in line
        assert "zookeeper.connect" in line


def test_a_settings_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=7\nnum.partitions=3\nlog.dirs={tmp_path / 'a'}\n")
    options = ("--config", str(file), "--data", str(tmp_path / "b"))
    with NodeProcess(tmp_path / "output", *options) as node:
        assert " node=7 " in node.ready_line
        with Wire(node.address) as wire:
            wire.topic_id("three")
            assert wire.produce("three", batch([b"x"]), partition=2).error_code == 0
    assert not (tmp_path / "a").exists()


def test_a_reader_that_takes_nothing_does_not_make_the_node_grow(node: NodeProcess) -> None:
    """Answers wait in the log and not in memory; past a bound no more requests are read."""
    node.start()
    with Wire(node.address) as wire, Wire(node.address) as slow:
        wire.topic_id("large")
        for _ in range(10):
            assert wire.produce("large", batch([bytes(1_000_000)])).error_code == 0
        before = node.resident_bytes()
        request, version = slow.fetch_request("large", version=12)
        for _ in range(2_000):
            slow.send(request, version)
        for _ in range(20):  # others are served meanwhile
            assert wire.produce("large", batch([b"x"])).error_code == 0
        assert node.resident_bytes() - before < 50 << 20
        assert len(slow.receive().responses[0].partitions[0].records) > 9_000_000


def owing_answers(node: NodeProcess) -> Wire:
    """A connection that has asked for more than it reads, so that a stop has to wait for it."""
    slow = Wire(node.address)
    slow.topic_id("owed")
    for _ in range(5):
        assert slow.produce("owed", batch([bytes(1_000_000)])).error_code == 0
    request, version = slow.fetch_request("owed", version=12)
    for _ in range(20):
        slow.send(request, version)
    return slow


def is_listening(node: NodeProcess) -> bool:
    try:
        Wire(node.address).socket.close()
    except ConnectionError:
        return False
    return True


def test_a_second_interrupt_ends_it_at_once(node: NodeProcess) -> None:
    node.start()
    with owing_answers(node):
        node.signal(signal.SIGINT)
        until(lambda: not is_listening(node), "the stop to begin")
        node.signal(signal.SIGINT)
        assert node.wait() == 130  # 0 if it had waited for the slow reader
    node.start()
    with Wire(node.address) as wire:
        assert len(wire.values("owed")) == 5


def test_a_reader_that_never_reads_does_not_hold_a_stop_for_ever(node: NodeProcess) -> None:
    node.start()
    with owing_answers(node):
        assert node.stop() == 0


def test_on_a_terminal_a_few_words_say_how_to_use_it() -> None:
    terminal, inner = os.openpty()
    process = subprocess.Popen(
        [str(HEADWATER), "start", "--memory", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=inner,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        shown = ""
        while "Ctrl-C" not in shown:
            shown += os.read(terminal, 4096).decode()
        assert f"bootstrap.servers={address}" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(inner)


def test_a_log_that_nobody_reads_does_not_stop_the_node() -> None:
    """stderr is a pipe whose reader went away: the node goes on."""
    process = subprocess.Popen(
        [str(HEADWATER), "start", "--memory", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().split()[1]
        process.stdout.close()
        process.stderr.close()
        for _ in range(3):
            with Wire(address) as bad:
                bad.socket.sendall(b"\xff" * 8)
                bad.wait_until_closed()
        with Wire(address) as wire:
            assert wire.is_served()
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def test_it_is_small(node: NodeProcess) -> None:
    """A bound that only something badly wrong would pass; `make bench` measures."""
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("first")
        assert wire.produce("first", batch([b"x"])).error_code == 0
    assert node.resident_bytes() < 55 << 20


def test_systemd_hears_that_it_is_ready_and_that_it_stops(
    node: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(address))
        notified.settimeout(PATIENCE_SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        node.start()
        told = _told(notified, "READY=1")
        assert f"STATUS=serving on {node.address}" in told
        assert node.stop() == 0
        told = _told(notified, "STOPPING=1")
        assert "STATUS=stopping" in told


def _told(notified: socket.socket, wanted: str) -> list[str]:
    """All that came up to the message with a line that is waited for."""
    lines: list[str] = []
    while wanted not in lines:
        lines += notified.recv(4096).decode().splitlines()
    return lines


def test_a_service_manager_that_is_gone_does_not_keep_it_from_starting(
    node: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    node.start()
    assert node.stop() == 0
