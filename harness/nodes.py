"""Nodes as processes: Headwater's and Apache Kafka's, started, stopped, killed and measured.

Both kinds have the same face, so that whatever is asked of one can be asked of the other.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness import kafka_jars

ROOT = Path(__file__).resolve().parent.parent
HEADWATER = Path(sys.executable).with_name("headwater")  # of the Python that runs this

# The heap and the collector as bin/kafka-server-start.sh and kafka-run-class.sh set them.
KAFKA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_START_TIMEOUT = 120.0
_STOP_TIMEOUT = 120.0
_PORTS = (12_000, 32_000)  # below net.ipv4.ip_local_port_range of Linux
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class NodeFailed(Exception):
    """A node ended, or did not open its port in time; the message has the end of its output."""


class Flavour(Protocol):
    """A kind of node: how one is prepared and what command runs it."""

    name: str

    def prepare(self, node: Node) -> None: ...

    def command(self, node: Node) -> list[str]: ...

    def log_folder(self, node: Node) -> Path: ...

    def is_ready(self, node: Node) -> bool: ...


@dataclass(slots=True)
class Node:
    """One node on one folder and one port, over any number of starts."""

    flavour: Flavour
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    port: int = 0
    controller_port: int = 0
    process: subprocess.Popen[bytes] | None = None
    printed_before: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        self.controller_port = self.controller_port or free_port()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_folder(self) -> Path:
        """The folder that holds the partitions' folders."""
        return self.flavour.log_folder(self)

    @property
    def output(self) -> Path:
        return self.folder / "node.out"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the node was never started"
        return self.process.pid

    def launch(self) -> None:
        """Starts the process and comes back at once."""
        assert self.process is None or self.process.poll() is not None, "already running"
        self.flavour.prepare(self)
        self.printed_before = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.flavour.command(self),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                process_group=0,  # of the same session, so that priorities apply to all of a run
            )
        _running.append(self)

    def start(self) -> Node:
        """Starts the process and waits until it serves."""
        self.launch()
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            self.raise_if_ended()
            if self.flavour.is_ready(self):
                return self
            time.sleep(0.02)
        raise NodeFailed(f"{self.flavour.name} did not get ready\n{self.last_output()}")

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def stop(self) -> None:
        """Asks it to stop and waits for that."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"{self.flavour.name} did not stop\n{self.last_output()}") from None

    def kill(self) -> None:
        """kill -9, as a crash would."""
        if self.process is None or self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def remove(self) -> None:
        """Kills it and deletes all it wrote."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def raise_if_ended(self) -> None:
        if self.process is not None and self.process.poll() is not None:
            raise NodeFailed(
                f"{self.flavour.name} ended with {self.process.returncode}\n{self.last_output()}"
            )

    def last_output(self, lines: int = 30) -> str:
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def cpu_seconds(self) -> float:
        """User and system time of the process so far, all threads together."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS

    def resident_bytes(self, *, peak: bool = False) -> int:
        wanted = "VmHWM:" if peak else "VmRSS:"
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(wanted):
                return int(line.split()[1]) * 1024
        raise NodeFailed(f"{self.flavour.name} has no {wanted} in /proc")


@dataclass(slots=True)
class Headwater:
    """Our own node, by the command a user types."""

    name: str = "headwater"

    def prepare(self, node: Node) -> None:
        pass  # formatted on first start

    def command(self, node: Node) -> list[str]:
        command = [str(HEADWATER), "start", "--data", str(self.log_folder(node))]
        if "listeners" not in node.settings:
            command += ["--listen", node.bootstrap]
        for key, value in node.settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def log_folder(self, node: Node) -> Path:
        return node.folder / "data"

    def is_ready(self, node: Node) -> bool:
        return said_ready(node)


@dataclass(slots=True)
class Kafka:
    """Apache Kafka, broker and controller in one process, with the defaults of its own scripts."""

    jars: Path
    name: str = "kafka"
    # False formats as kafka-storage --standalone does, with the voters in the metadata log; True is
    # the older way, with the voters in the properties.
    static_voters: bool = False
    cluster_id: str = "aGVhZHdhdGVyLWp1ZGdlcw"
    more: tuple[Path, ...] = ()  # folders with jars of plugins
    options: tuple[str, ...] = ()  # of the virtual machine

    def prepare(self, node: Node) -> None:
        controller = f"127.0.0.1:{node.controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": _meta_property(self.log_folder(node), "node.id") or "1",
            "listeners": f"PLAINTEXT://{node.bootstrap},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_folder(node)),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        if self.static_voters:
            settings["controller.quorum.voters"] = f"{settings['node.id']}@{controller}"
        else:
            settings["controller.quorum.bootstrap.servers"] = controller
        settings |= node.settings
        properties = node.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.log_folder(node) / "meta.properties").exists():
            arguments = ["format", "-t", self.cluster_id, "-c", str(properties)]
            if not self.static_voters:
                arguments.append("--standalone")
            run_java(self.jars, "kafka.tools.StorageTool", *arguments)

    def command(self, node: Node) -> list[str]:
        properties = str(node.folder / "server.properties")
        options = (*KAFKA_OPTIONS, *self.options)
        return kafka_jars.java_command(
            self.jars, "kafka.Kafka", properties, options=options, more=self.more
        )

    def log_folder(self, node: Node) -> Path:
        return node.folder / "data"

    def is_ready(self, node: Node) -> bool:
        """It says nothing that can be relied on; its port opens when it serves."""
        return opens(node.port)


def said_ready(node: Node) -> bool:
    """Returns whether a Headwater node has printed its ready line, once for each start."""
    return b"\nready: " in b"\n" + node.output.read_bytes()[node.printed_before :]


def opens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def run_java(
    folder: Path,
    main: str,
    *arguments: str,
    stdin: str | None = None,
    timeout: float = 300.0,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's tools to its end and hands back what it printed; fails if the tool does,
    unless `check` is False."""
    # Tools live for a second or two: the quick compiler alone makes them start sooner.
    options = ("-Xmx512M", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    done = subprocess.run(
        kafka_jars.java_command(folder, main, *arguments, options=options),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"{main} {' '.join(arguments)}\nended with {done.returncode}\n"
            f"{done.stdout}{done.stderr}"
        )
    return done


def _meta_property(folder: Path, key: str) -> str | None:
    """Returns a property of a formatted folder, None if it has none of this name."""
    path = folder / "meta.properties"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]
    return found[0] if found else None


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    """Looks again and again until it holds; fails with `what` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


def free_port() -> int:
    """A port that nobody listens on. Not one of those that the kernel gives to outgoing
    connections: a node may start seconds later, and by then it could have been taken for one."""
    for _ in range(1000):
        port = random.randrange(*_PORTS)
        with socket.socket() as chosen:
            chosen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                chosen.bind(("127.0.0.1", port))
                return port
    raise NodeFailed(f"no port from {_PORTS[0]} to {_PORTS[1]} is free")


_running: list[Node] = []


@atexit.register
def _kill_what_was_left() -> None:
    for node in _running:
        node.kill()


def end_nodes_when_terminated() -> None:
    """SIGTERM ends a program without its exit handlers, and the nodes would live on."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
