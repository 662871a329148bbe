"""`headwater start --nodes N`: a cluster on this host, one process for each node.

This process starts the nodes, prints their log lines with the node in front, and stops them in
order. It keeps a pipe to each: a node whose supervisor is gone stops by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.cli.cluster_plan import (
    NODES_MAX,
    ClusterPlan,
    PlannedNode,
    check_shared,
    free_ports,
    new_plan,
    parse_listen,
    plan_on_disk,
)
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.settings import DATA_DEFAULT, check_settings, given_settings, unguarded
from headwater.cli.supervision import LEFT
from headwater.io.clock import SystemClock
from headwater.io.service import ServiceManager
from headwater.observability import Log

_STDERR = 2
_CHUNK_BYTES = 65536
_LINE_BYTES_MAX = 1024 * 1024
_REPORT_SECONDS = 10.0
_RESTART_SECONDS_MIN = 1.0
_RESTART_SECONDS_MAX = 30.0
_LEAVE_SECONDS = 30.0  # after that a node stops as it is, and the controller notices
_STOPPED_AT_ONCE = 130
_READY = b"ready: "


def run_cluster(options: Namespace) -> int:
    if not 1 <= options.nodes <= NODES_MAX:
        raise CommandError(f"--nodes {options.nodes}: expected 1 to {NODES_MAX}", code=USAGE)
    shared = given_settings(options)
    check_shared(shared)
    if options.listen and not options.insecure:
        from headwater.config.support import is_loopback

        if not is_loopback(parse_listen(options.listen)[0]):
            raise unguarded(options.listen)
    if options.metrics is not None:
        shared["headwater.metrics.listen"] = options.metrics  # checked here, a port for each later
    if options.memory:
        if options.data:
            raise CommandError("--memory keeps no files: leave out --data", code=USAGE)
        with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
            plan = new_plan(folder, options.nodes, options.listen)
            check_settings(plan.properties(plan.nodes[0]) | shared)
            plan.write_files()
            return _supervise(plan, options, "memory")
    folder = os.path.abspath(options.data or DATA_DEFAULT)
    check_settings(shared)  # before anything is written
    plan = plan_on_disk(folder, options.nodes, options.listen)
    return _supervise(plan, options, folder)


def _supervise(plan: ClusterPlan, options: Namespace, data: str) -> int:
    metrics = _metrics_addresses(plan, options.metrics)

    def command(node: PlannedNode, *, again: bool) -> list[str]:
        shared = [word for path in options.config for word in ("--config", os.path.abspath(path))]
        shared += [word for item in options.set for word in ("--set", item)]
        if node.id in metrics:
            shared += ["--set", f"headwater.metrics.listen={metrics[node.id]}"]
        return node_command(plan, node, shared, memory=options.memory, again=again)

    def announce(addresses: Sequence[str]) -> str:
        line = f"ready: {','.join(addresses)} nodes={len(plan.nodes)} cluster={plan.cluster_id}"
        if metrics:
            line += f" metrics={','.join(metrics.values())}"
        return f"{line} data={data}"

    is_json = given_settings(options).get("headwater.log.format") == "json"
    supervisor = Supervisor(
        {node.id: node for node in plan.nodes},
        command,
        announce,
        restarts=options.restart,
        report=_report_in_json if is_json else _report,
    )
    return asyncio.run(supervisor.run())


def _metrics_addresses(plan: ClusterPlan, listen: str | None) -> dict[int, str]:
    """Returns where each node serves its metrics: at the port of `--metrics` and the next free
    ones."""
    if listen is None:
        return {}
    host, first = parse_listen(listen)
    taken: set[int | None] = {node.port for node in plan.nodes}
    taken |= {node.controller_port for node in plan.nodes}
    ports = free_ports(host, first, len(plan.nodes), taken=taken)
    named = f"[{host}]" if ":" in host else host
    return {node.id: f"{named}:{port}" for node, port in zip(plan.nodes, ports, strict=True)}


def node_command(
    plan: ClusterPlan,
    node: PlannedNode,
    options: Sequence[str] = (),
    *,
    memory: bool = False,
    again: bool = False,
) -> list[str]:
    """Returns the command that runs one node of a plan. In memory, a node that is started `again`
    is a new and empty one, which does not vote until it is added."""
    command = [sys.executable, "-m", "headwater.cli.main", "start", "--supervised"]
    command += ["--config", plan.config_file(node.id), *options]
    if memory:
        command += ["--memory", "--cluster-id", plan.cluster_id]
        if not again:
            command += ["--initial-controllers", plan.initial_controllers]
    return command


@dataclass(slots=True)
class _Child:
    """One node's process, over any number of starts."""

    node: PlannedNode
    process: asyncio.subprocess.Process | None = None
    address: str | None = None  # once it serves
    starts: int = 0
    pause: float = _RESTART_SECONDS_MIN
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.returncode is None


class Supervisor:
    """Runs nodes until it is told to stop."""

    def __init__(
        self,
        nodes: dict[int, PlannedNode],
        command: Callable[..., list[str]],
        announce: Callable[[Sequence[str]], str],
        *,
        restarts: bool,
        report: Callable[[str], None],
    ) -> None:
        """`command` returns the command line of a node, `announce` the line for when all serve,
        `report` writes what happens to the log."""
        self._children = [_Child(node) for node in nodes.values()]
        self._command = command
        self._announce = announce
        self._restarts = restarts
        self._report = report
        self._watching: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._announced = False
        self._failed = False
        self._manager = ServiceManager.from_environment()

    async def run(self) -> int:
        """Returns the exit code when all nodes have ended."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stop_or_end)
        # These may be sent twice, by a service manager or a terminal that closes: a second one does
        # not cut the stop short.
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: it outlives its terminal
            loop.add_signal_handler(signal.SIGHUP, self._stop)
        for child in self._children:
            self._watching[child.node.id] = asyncio.ensure_future(self._watch(child))
        try:
            await self._until_asked_to_stop()
            await self._stop_in_order()
        finally:
            self._kill_all()
            await asyncio.gather(*self._watching.values(), return_exceptions=True)
        return 1 if self._failed else 0

    def _stop(self) -> None:
        self._stopping.set()
        self._changed.set()

    def _stop_or_end(self) -> None:
        if self._stopping.is_set():
            self._kill_all()
            os._exit(_STOPPED_AT_ONCE)  # the next start recovers, as after a crash
        self._stop()

    # Running

    async def _until_asked_to_stop(self) -> None:
        while not self._stopping.is_set():
            waiting = [child.node.id for child in self._children if child.address is None]
            if not waiting and not self._announced:
                self._say_ready()
            if all(watch.done() for watch in self._watching.values()):
                self._failed = True
                self._report("no node is left")
                return
            timeout = _REPORT_SECONDS if waiting and not self._announced else None
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                self._manager.busy("starting", seconds=3 * _REPORT_SECONDS)
                self._report(f"still waiting for {_named(waiting)} to serve")
            self._changed.clear()

    def _say_ready(self) -> None:
        self._announced = True
        addresses = [child.address or "" for child in self._children]
        with contextlib.suppress(OSError):  # nobody may be reading
            print(self._announce(addresses), flush=True)
        self._manager.ready(f"serving on {','.join(addresses)}")

    async def _watch(self, child: _Child) -> None:
        """Runs a node, and runs it again after it has died where that is wanted."""
        try:
            while True:
                code = await self._run_once(child)
                if self._stopping.is_set():
                    return
                self._on_death(child, code)
                if not self._restarts:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(child.pause):
                        await self._stopping.wait()
                    return
                child.pause = min(2 * child.pause, _RESTART_SECONDS_MAX)
        finally:
            self._changed.set()

    async def _run_once(self, child: _Child) -> int:
        command = self._command(child.node, again=child.starts > 0)
        child.starts += 1
        # A process group of its own: Ctrl-C at a terminal goes to all processes of a group, and the
        # nodes are to stop one after the other.
        child.process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(
            _each_line(process.stdout, lambda line: self._on_output(child, line)),
            _each_line(process.stderr, lambda line: _print_line(child.node.id, line)),
        )
        code = await process.wait()
        child.address = None
        return code

    def _on_output(self, child: _Child, line: bytes) -> None:
        if line == LEFT.encode():
            child.left.set()
            return
        if not line.startswith(_READY):
            _print_line(child.node.id, line)
            return
        child.address = line[len(_READY) :].split()[0].decode()
        child.pause = _RESTART_SECONDS_MIN
        if self._announced:
            self._report(f"node {child.node.id} serves again on {child.address}")
        self._changed.set()

    def _on_death(self, child: _Child, code: int) -> None:
        assert child.process is not None
        who = f"node {child.node.id} (process {child.process.pid}) {_how_it_ended(code)}"
        if self._restarts:
            self._report(f"{who}; starting it again in {child.pause:.0f} s")
        elif self._announced:
            self._report(
                f"{who}; the others go on. --restart starts a dead node again; now, end this "
                "command with Ctrl-C and run it once more"
            )
        else:
            self._report(f"{who} before all nodes were ready; stopping the others")
            self._failed = True
            self._stopping.set()
        self._changed.set()

    # Stopping

    async def _stop_in_order(self) -> None:
        """Lets the brokers leave, the last node first: each moves its leaderships to others, for
        which the quorum must be there. Then all nodes stop."""
        self._stopping.set()
        self._manager.stopping()
        running = [child for child in self._children if child.is_running]
        for child in reversed(running):
            if child.address is not None:
                await self._let_leave(child)
        for child in running:
            if child.process is not None and child.is_running:
                child.process.terminate()
        waiting = {child.node.id: self._watching[child.node.id] for child in running}
        while waiting:
            await asyncio.wait(waiting.values(), timeout=_REPORT_SECONDS)
            waiting = {node: watch for node, watch in waiting.items() if not watch.done()}
            if waiting:
                self._report(f"waiting for {_named(list(waiting))} to stop; Ctrl-C ends it at once")

    async def _let_leave(self, child: _Child) -> None:
        assert child.process is not None
        assert child.process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has just died
            child.process.stdin.write(b"leave\n")
        left = asyncio.ensure_future(child.left.wait())
        watch = self._watching[child.node.id]
        await asyncio.wait(
            (left, watch), timeout=_LEAVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        left.cancel()

    def _kill_all(self) -> None:
        for child in self._children:
            if child.process is not None and child.is_running:
                with contextlib.suppress(ProcessLookupError):
                    child.process.kill()


async def _each_line(stream: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            take(line)
        if len(rest) > _LINE_BYTES_MAX:
            take(rest)
            rest = b""
    if rest:
        take(rest)


def _print_line(node_id: int, line: bytes) -> None:
    if line.startswith(b"{"):  # JSON, which names the node itself
        line += b"\n"
    else:
        line = b"[node %d] %s\n" % (node_id, line)
    with contextlib.suppress(OSError):  # a log that cannot be written must not stop the nodes
        os.write(_STDERR, line)


def _report(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"headwater start: {text}\n".encode())


def _report_in_json(text: str) -> None:
    log = Log(SystemClock(), lambda line: os.write(_STDERR, line.encode()))
    log.write_as("json")
    with contextlib.suppress(OSError):
        log.info(text)


def _how_it_ended(code: int) -> str:
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit code {code}"


def _named(nodes: Sequence[int]) -> str:
    listed = ", ".join(map(str, nodes))
    return f"node {listed}" if len(nodes) == 1 else f"nodes {listed}"
