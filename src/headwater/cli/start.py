"""`headwater start`: runs a node in this process until SIGTERM, SIGHUP or Ctrl-C.

Prints one line on stdout when the node can serve, `ready: HOST:PORT ...`; everything else goes to
stderr, one line for each event. Startup time matters to people and to tests, so only what a node
needs is imported here.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.cli.errors import USAGE, CommandError
from headwater.cli.quick import import_asyncio
from headwater.cli.settings import (
    MEMORY_DATA,
    add_settings_options,
    check_guarded,
    check_metrics,
    check_settings,
    read_settings,
)

if TYPE_CHECKING:
    import asyncio

    from headwater.broker.node import Node
    from headwater.config import NodeConfig
    from headwater.io import Address, Host
    from headwater.observability import Log

_EXAMPLES = """\
examples:
  headwater start                                 on 127.0.0.1:9092, data in ./headwater-data
  headwater start --data /srv/headwater --listen 127.0.0.1:9094
  headwater start --config server.properties --set log.retention.hours=24
  headwater start --memory --listen 127.0.0.1:0   for tests: no files, any free port
  headwater start --nodes 3 --data /srv/cluster   three nodes on this host, which replicate
  headwater start --metrics 127.0.0.1:9404        with metrics for Prometheus, and /healthz

A new directory is formatted on the first start, unless the settings name a quorum (see headwater
format). One line on stdout says when the node can serve:
  ready: 127.0.0.1:9092 node=1 cluster=3Db5QLSqSZieL3rJBUUegA data=/srv/headwater
SIGTERM, SIGHUP or Ctrl-C stops it cleanly; a second Ctrl-C ends it at once. Under systemd it
supports Type=notify.
"""

_STOPPED_AT_ONCE = 130
_STDERR = 2
_PATIENCE_SECONDS = 30.0  # the time to ask a service manager for, while a start takes long

# A node makes few long-lived objects and many that die at once; with the default thresholds (700
# objects) the garbage collector would run thousands of times and find nothing.
_GC_THRESHOLDS = (50_000, 20, 50)

# How long a worker thread may keep the interpreter while the loop wants it. Python's 5 ms would be
# the latency of a request that arrives while a worker prepares a checkpoint or a cleaning.
_SWITCH_SECONDS = 0.0005


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_settings_options(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address to listen on (default: 127.0.0.1:9092); port 0 picks a free port",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow --listen beyond loopback without authentication, and --metrics",
    )
    parser.add_argument(
        "--memory", action="store_true", help="keep all data in memory; nothing is written to disk"
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve metrics for Prometheus, /healthz and /readyz (headwater.metrics.listen)",
    )
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=int,
        help="run a cluster of N nodes on this host, one process each, in subdirectories of --data",
    )
    parser.add_argument(
        "--restart", action="store_true", help="with --nodes: restart nodes that die"
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="how log lines are written (headwater.log.format; default: text)",
    )
    # For the process that supervises several nodes, and for tests.
    for flag in ("--supervised", "--faults"):
        parser.add_argument(flag, action="store_true", help=SUPPRESS)
    for name in ("--cluster-id", "--initial-controllers"):
        parser.add_argument(name, help=SUPPRESS)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    if options.log_format is not None:
        options.set.append(f"headwater.log.format={options.log_format}")
    if options.metrics is not None:
        check_metrics(options.metrics, insecure=options.insecure)
        if options.nodes is None:
            options.set.append(f"headwater.metrics.listen={options.metrics}")
    if options.nodes is not None:
        from headwater.cli.local_cluster import run_cluster

        return run_cluster(options)
    if options.restart:
        raise CommandError(
            "--restart: expected --nodes N; let a service manager restart a single node", code=USAGE
        )
    return _run_node(options)


def _run_node(options: Namespace) -> int:
    config = check_settings(read_settings(options, listen=options.listen, memory=options.memory))
    if options.listen and not options.insecure:
        check_guarded(config, options.listen)
    _raise_file_limit()
    gc.disable()  # a start creates many objects and hardly any garbage
    import_asyncio()
    import asyncio

    from headwater.io import Host
    from headwater.io.attention import WatchfulLoop
    from headwater.observability import Log

    host = Host.in_memory() if options.memory else Host.system()
    if options.memory and options.cluster_id:
        _format_memory(host, config, options)
    if not options.memory:
        _refuse_folder_of_cluster(config)
    if options.faults:
        from headwater.io.cut import CuttableNetwork

        host = replace(host, network=CuttableNetwork())
    log = Log(host.clock, _write_line)
    with asyncio.Runner(loop_factory=WatchfulLoop) as runner:
        return runner.run(_serve(config, host, log, supervised=options.supervised))


def _format_memory(host: Host, config: NodeConfig, options: Namespace) -> None:
    """Formats a disk in memory for a cluster; on a real one that is a command of its own."""
    from headwater.broker.formatting import InitialQuorum, format_directories, parse_voters

    listed = None
    if options.initial_controllers:
        listed = parse_voters(options.initial_controllers, config.controller_listener_names[0])
    quorum = InitialQuorum(listed=listed)
    format_directories(host, config, cluster_id=options.cluster_id, quorum=quorum)


def _refuse_folder_of_cluster(config: NodeConfig) -> None:
    from headwater.cli.cluster_plan import count_of_cluster

    for path in config.log_dirs:
        count = count_of_cluster(path)
        if count is not None:
            raise CommandError(
                f"{path} has a cluster of {count} nodes",
                then=f"start it with --nodes {count}, or choose another directory with --data",
            )


async def _serve(config: NodeConfig, host: Host, log: Log, *, supervised: bool = False) -> int:
    import asyncio

    from headwater.broker.formatting import FormatRefused
    from headwater.broker.node import Node
    from headwater.config import ConfigError
    from headwater.errors import ApiError
    from headwater.io.service import ServiceManager
    from headwater.storage.log_dirs import DirectoryRefused

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _on_loop_failure(log, context))
    manager = ServiceManager.from_environment()
    asked_to_stop = asyncio.Event()
    _on_signals(asked_to_stop)
    supervision = None
    if supervised:
        from headwater.cli.supervision import Supervision

        supervision = Supervision(asked_to_stop, host.network)
        await supervision.follow()
    node = Node(config, host, log)
    asked = asyncio.ensure_future(asked_to_stop.wait())
    starting = asyncio.ensure_future(node.start())
    while not starting.done() and not asked.done():
        manager.busy("starting", seconds=_PATIENCE_SECONDS)
        await asyncio.wait(
            (starting, asked),
            timeout=_PATIENCE_SECONDS / 3,
            return_when=asyncio.FIRST_COMPLETED,
        )
    if not starting.done():  # asked to stop during a long recovery
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return 0
    except ConfigError as error:
        raise CommandError(str(error), code=USAGE) from None
    except (OSError, ApiError, FormatRefused, DirectoryRefused) as error:
        raise _explained(error) from error
    address = _ready_address(config, node)
    _say_ready(config, node, address)
    manager.ready(f"serving on {address}")
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    assert node.failed is not None
    leaving = None
    if supervision is not None:
        leaving = asyncio.ensure_future(supervision.leave_when_asked(node))
    await asyncio.wait((asked, node.failed), return_when=asyncio.FIRST_COMPLETED)
    if leaving is not None:
        leaving.cancel()
    manager.stopping()
    await node.stop()
    if node.failed.done():
        raise CommandError(
            node.failed.result(),
            then="fix the cause named in the lines above, then start the node again: "
            "it recovers by itself",
        )
    return 0


def _on_signals(asked_to_stop: asyncio.Event) -> None:
    import asyncio

    def stop() -> None:
        asked_to_stop.set()

    def stop_or_end() -> None:
        if asked_to_stop.is_set():
            os._exit(_STOPPED_AT_ONCE)  # the next start recovers, as after a crash
        asked_to_stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop_or_end)
    # These may be sent twice, by a supervisor or a terminal that closes: a second one does not cut
    # the stop short.
    loop.add_signal_handler(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: it outlives its terminal
        loop.add_signal_handler(signal.SIGHUP, stop)


def _ready_address(config: NodeConfig, node: Node) -> Address:
    if config.is_broker:
        address = node.addresses[config.broker_listeners[0].name]
    else:
        address = node.controller_addresses[config.controller_listeners[0].name]
    if address.host == "::":
        # The same socket, in a form that every client can parse.
        address = address._replace(host="0.0.0.0")
    return address


def _say_ready(config: NodeConfig, node: Node, address: Address) -> None:
    """Prints the one line on stdout, and on a terminal a few words for a person."""
    data = ",".join(config.log_dirs)
    if data == MEMORY_DATA:
        data = "memory"
    line = f"ready: {address} node={config.node_id} cluster={node.cluster_id}"
    if node.metrics_address is not None:
        line += f" metrics={node.metrics_address}"
    line += f" data={data}"
    with contextlib.suppress(OSError):  # nobody may be reading
        print(line, flush=True)
    if sys.stderr.isatty():
        sys.stderr.write(_banner(str(address), data))


def _banner(address: str, data: str) -> str:
    return f"""
  Headwater listens on {address} and keeps its data in {data}.
  Any Kafka client can use it: bootstrap.servers={address}
  Ctrl-C stops it.

"""


def _explained(error: Exception) -> CommandError:
    """Returns an error with its cause and what to do about it."""
    if not isinstance(error, OSError):
        return CommandError(str(error))
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        return CommandError(
            f"{error.filename} is in use by another process",
            then="stop that process, or choose another port with --listen or --metrics HOST:PORT "
            "(port 0 picks a free port)",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return CommandError(
            f"{error.filename} is not an address of this machine",
            then="choose one with --listen HOST:PORT; an empty host means every interface",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return CommandError(
            f"{error.filename}: {reason}",
            then="choose a directory with --data DIR or a port above 1023 with --listen HOST:PORT",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CommandError(
            f"the disk is too full to start: {reason}",
            then="free some space and start the node again; a start needs a few kilobytes",
        )
    what = f"{error.filename}: {reason}" if error.filename else reason
    return CommandError(what)


def _raise_file_limit() -> None:
    """Raises the limit of open files to the hard limit: each segment and connection needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _write_line(line: str) -> None:
    """Writes to the descriptor without a buffer, whose rest could not be written at the exit."""
    with contextlib.suppress(OSError):  # a log that cannot be written must not stop the node
        os.write(_STDERR, line.encode(errors="backslashreplace"))


def _on_loop_failure(log: Log, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.failure(context["message"], error)
    else:
        log.error(context["message"])
