"""A real cluster for a test: one process for each node, which can be killed, paused and cut off.

    with HeadwaterCluster(nodes=3, topics={"orders": 6}) as cluster:
        service = Service(bootstrap=cluster.bootstrap)
        cluster.kill(cluster.leader("orders"))
        cluster.wait_leader("orders")

The nodes are those of `headwater start --nodes N`. Nothing needs root: a cut is made inside the
node, by a switch that only this class sets.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from headwater.cli.cluster_plan import ClusterPlan, PlannedNode, new_plan, plan_on_disk
from headwater.cli.local_cluster import node_command
from headwater.testing import topics as topics_of

if TYPE_CHECKING:
    from types import TracebackType

    from headwater import ConsumedRecord
    from headwater.client.admin import Partition

R = TypeVar("R")

_LOG_LINES_MAX = 2000
_READY_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_ADMIN_TIMEOUT_MS = 5000
_SWITCH = ("cut_off", "reconnect")
_UNLESS_GIVEN = {"group.initial.rebalance.delay.ms": "0"}


class NodeFailed(Exception):
    """A node ended, or did not serve in time; the message has the end of its log."""


class _Node:
    """One node's process, over any number of starts."""

    def __init__(self, planned: PlannedNode, lines: deque[str]) -> None:
        self.planned = planned
        self.address = f"127.0.0.1:{planned.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = threading.Event()
        self.starts = 0
        self.is_cut = False
        self.is_paused = False
        self._lines = lines
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self, command: list[str]) -> None:
        assert not self.is_running, f"node {self.planned.id} is already running"
        self.ready = threading.Event()
        self.is_cut = self.is_paused = False
        self.starts += 1
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._reader = threading.Thread(
            target=self._read, args=(self.process, self.ready), daemon=True
        )
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode(errors="replace")
            self._lines.append(f"[node {self.planned.id}] {line}")
            if line.startswith("ready: "):
                ready.set()
            elif line.strip() in _SWITCH:
                self._answers.put(line.strip())

    def control(self, word: str) -> None:
        """Sets the switch of its network, and waits until that is done."""
        assert self.is_running, f"node {self.planned.id} is not running"
        assert not self.is_paused, f"node {self.planned.id} is paused"
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()
        try:
            answer = self._answers.get(timeout=_STOP_SECONDS)
        except queue.Empty:
            raise NodeFailed(f"node {self.planned.id} did not {word}") from None
        assert answer == word, answer

    def send_signal(self, number: signal.Signals) -> None:
        assert self.is_running, f"node {self.planned.id} is not running"
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> None:
        """Waits for the process and what it still prints."""
        if self.process is None:
            return
        self.process.wait(_STOP_SECONDS)
        if self._reader is not None:
            self._reader.join(_STOP_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # a control line that nobody read


class HeadwaterCluster:
    """Nodes 1 to N on loopback, on free ports; its data is gone when it is closed."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        nodes: int = 3,
        data: str | os.PathLike[str] | None = None,
        memory: bool = False,
        topics: Mapping[str, int] | None = None,
        racks: Sequence[str] = (),
    ) -> None:
        """Takes Kafka's settings, for each node, with the defaults of `headwater start --nodes`,
        except that groups begin at once. `data` is a directory, or None for a temporary one. With
        `memory`, a node that was killed or stopped comes back empty and fetches its replicas again.
        `topics` are created at the start, each with its number of partitions. `racks` has the
        `broker.rack` of node 1, 2 and so on."""
        self._settings = _UNLESS_GIVEN | dict(settings or {})
        self._racks = dict(enumerate(racks, 1))
        self._topics = dict(topics or {})
        self._memory = memory
        self._temporary = None if data is not None else tempfile.mkdtemp(prefix="headwater-")
        folder = os.path.abspath(os.fspath(data)) if data is not None else str(self._temporary)
        if memory:
            self._plan: ClusterPlan = new_plan(folder, nodes, "127.0.0.1:0")
            self._plan.write_files()
        else:
            self._plan = plan_on_disk(f"{folder}/cluster", nodes, "127.0.0.1:0")
        self._lines: deque[str] = deque(maxlen=_LOG_LINES_MAX)
        self._nodes = {node.id: _Node(node, self._lines) for node in self._plan.nodes}

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for any client; the same after a restart."""
        return ",".join(self.addresses.values())

    @property
    def addresses(self) -> dict[int, str]:
        """HOST:PORT of each node, by its id."""
        return {node_id: node.address for node_id, node in self._nodes.items()}

    @property
    def controllers(self) -> str:
        """The controllers' addresses, for `bootstrap.controllers`."""
        return ",".join(f"127.0.0.1:{node.controller_port}" for node in self._plan.voters)

    @property
    def cluster_id(self) -> str:
        return self._plan.cluster_id

    @property
    def running(self) -> list[int]:
        """The ids of the nodes whose process is there."""
        return [node_id for node_id, node in self._nodes.items() if node.is_running]

    @property
    def log_lines(self) -> list[str]:
        """The lines of the nodes' logs, the newest last."""
        return list(self._lines)

    def data(self, node: int) -> str:
        """The directory of a node."""
        return self._plan.data(node)

    # Start and stop

    def start(self, *nodes: int) -> Self:
        """Starts these nodes, or all that are not running; returns when they serve."""
        self.launch(*nodes)
        self.wait_ready(*nodes)
        return self

    def launch(self, *nodes: int) -> None:
        """Starts these nodes, or all that are not running, and returns at once."""
        for node_id in nodes or [each for each in self._nodes if each not in self.running]:
            node = self._nodes[node_id]
            options = ["--faults"]
            for key, value in self._settings.items():
                options += ["--set", f"{key}={value}"]
            if node_id in self._racks:
                options += ["--set", f"broker.rack={self._racks[node_id]}"]
            node.launch(
                node_command(
                    self._plan, node.planned, options, memory=self._memory, again=node.starts > 0
                )
            )

    def wait_ready(self, *nodes: int, timeout: float = _READY_SECONDS) -> None:
        """Waits until these nodes, or all that run, serve; raises NodeFailed otherwise."""
        deadline = time.monotonic() + timeout
        for node_id in nodes or self.running:
            node = self._nodes[node_id]
            while not node.ready.wait(_LOOK_SECONDS):
                if not node.is_running:
                    raise NodeFailed(f"node {node_id} ended\n{self._last_lines()}")
                if time.monotonic() > deadline:
                    raise NodeFailed(
                        f"node {node_id} does not serve after {timeout:.0f} s\n{self._last_lines()}"
                    )

    def stop(self, *nodes: int) -> None:
        """Stops these nodes, or all, as SIGTERM does: each moves its leaderships to others first.
        Those that are named stop one after the other, all of them at once."""
        for node_id in nodes:
            self._stop([node_id])
        if not nodes:
            self._stop(self.running)

    def _stop(self, nodes: Iterable[int]) -> None:
        stopping = [self._nodes[node_id] for node_id in nodes if self._nodes[node_id].is_running]
        for node in stopping:
            if node.is_paused:
                node.send_signal(signal.SIGCONT)
            node.send_signal(signal.SIGTERM)
        for node in stopping:
            try:
                node.ended()
            except subprocess.TimeoutExpired:
                self.kill(node.planned.id)
                raise NodeFailed(
                    f"node {node.planned.id} did not stop\n{self._last_lines()}"
                ) from None

    def restart(self, *nodes: int) -> None:
        """Stops and starts these nodes, or all of them, one after the other."""
        for node_id in nodes or list(self._nodes):
            self.stop(node_id)
            self.start(node_id)

    def close(self) -> None:
        """Ends all nodes at once, and removes the data unless it has a directory of its own."""
        for node_id in self.running:
            self.kill(node_id)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        if not self.running:
            try:
                self.start()
                topics_of.create(self.bootstrap, self._topics)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Faults

    def kill(self, node: int) -> None:
        """Ends a node's process at once (kill -9)."""
        killed = self._nodes[node]
        if killed.is_running:
            killed.send_signal(signal.SIGKILL)
        killed.ended()

    def pause(self, node: int) -> None:
        """Stops a node's process (SIGSTOP): connections stay open and nothing is answered."""
        self._nodes[node].send_signal(signal.SIGSTOP)
        self._nodes[node].is_paused = True

    def resume(self, node: int) -> None:
        """Lets a node's process go on (SIGCONT)."""
        self._nodes[node].send_signal(signal.SIGCONT)
        self._nodes[node].is_paused = False

    def cut_off(self, node: int) -> None:
        """Cuts a node off from everybody: it runs on, but what it sends does not arrive, and what
        is sent to it waits."""
        self._nodes[node].control("cut_off")
        self._nodes[node].is_cut = True

    def reconnect(self, node: int) -> None:
        """Connects a node again; what was on its way arrives."""
        self._nodes[node].control("reconnect")
        self._nodes[node].is_cut = False

    # What the cluster knows

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """Returns a partition as the cluster describes it."""
        from headwater.blocking import Admin

        with Admin(self._reachable(), default_api_timeout_ms=_ADMIN_TIMEOUT_MS) as admin:
            found = admin.describe_topics([topic])[topic]
        if isinstance(found, Exception):
            raise found
        return found.partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Returns the node that leads a partition, or None."""
        return self.partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Returns the in-sync replicas of a partition, in order."""
        return sorted(self.partition(topic, partition).in_sync)

    def controller(self) -> int:
        """Returns the node that is the active controller."""
        from headwater.blocking import Admin

        with Admin(self._reachable(), default_api_timeout_ms=_ADMIN_TIMEOUT_MS) as admin:
            return admin.describe_quorum().leader_id

    def wait_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | None = None,
        timeout: float = 30.0,
    ) -> int:
        """Waits until a node that runs, and not `other_than`, leads a partition; returns it."""

        def found() -> int | None:
            leader = self.leader(topic, partition)
            return None if leader == other_than or leader not in self._answering() else leader

        return self._until(found, f"{topic}-{partition} has no such leader", timeout)

    def wait_isr(
        self,
        topic: str,
        partition: int = 0,
        *,
        nodes: Collection[int] | None = None,
        timeout: float = 30.0,
    ) -> list[int]:
        """Waits until these nodes, or all replicas, are in sync; returns them in order."""

        def found() -> list[int] | None:
            described = self.partition(topic, partition)
            wanted = sorted(described.replicas if nodes is None else nodes)
            return wanted if sorted(described.in_sync) == wanted else None

        return self._until(found, f"{topic}-{partition} does not have that ISR", timeout)

    def wait_voters(self, *nodes: int, timeout: float = 30.0) -> None:
        """Waits until these nodes, and no others, vote and follow the quorum: a voter whose
        directory was lost is listed until it is replaced, but does not follow."""
        from headwater.blocking import Admin

        began_ms = time.time() * 1000

        def found() -> bool | None:
            with Admin(self._reachable(), default_api_timeout_ms=_ADMIN_TIMEOUT_MS) as admin:
                quorum = admin.describe_quorum()
            following = sorted(
                voter.node_id
                for voter in quorum.voters
                if voter.node_id == quorum.leader_id or (voter.last_caught_up_ms or 0) > began_ms
            )
            return (following == sorted(nodes) and len(quorum.voters) == len(nodes)) or None

        self._until(found, f"nodes {', '.join(map(str, nodes))} do not vote", timeout)

    def _until(self, look: Callable[[], R | None], failure: str, timeout: float) -> R:
        from headwater.client.errors import ClientError

        deadline = time.monotonic() + timeout
        seen: object = None
        while True:
            try:
                found = look()
            except ClientError as error:
                found, seen = None, error
            if found is not None:
                return found
            if time.monotonic() > deadline:
                seen = f": {seen}" if seen is not None else ""
                raise TimeoutError(f"{failure} after {timeout:.0f} s{seen}")
            time.sleep(_LOOK_SECONDS)

    def _answering(self) -> list[int]:
        """Returns the nodes that run and can be reached."""
        return [
            node_id
            for node_id, node in self._nodes.items()
            if node.is_running and not node.is_cut and not node.is_paused
        ]

    def _reachable(self) -> str:
        return ",".join(self.addresses[node_id] for node_id in self._answering())

    # Records

    def send(
        self,
        topic: str,
        value: str | bytes | None,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Writes a record to a topic; all in-sync replicas have it when this returns."""
        topics_of.send(self._reachable(), topic, value, key=key, headers=headers)

    def records(
        self, topic: str, count: int | None = None, *, timeout_ms: int = 10_000
    ) -> list[ConsumedRecord]:
        """Returns all records of a topic; with `count`, as soon as there are that many."""
        return topics_of.read(self._reachable(), topic, count, timeout_ms=timeout_ms)

    def _last_lines(self) -> str:
        return "".join(self.log_lines[-50:])
