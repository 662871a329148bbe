"""`headwater start`: one node in this process, until SIGTERM or Ctrl-C.

Prints one line on stdout when it can serve, `ready: HOST:PORT ...`, for whoever started it; all
else goes to stderr, one line an event. How soon it is ready matters to people and to tests, so
what a node needs is imported here and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from headwater.cli.errors import USAGE, CommandError
from headwater.cli.quick import import_asyncio
from headwater.cli.settings import (
    MEMORY_DATA,
    add_settings_options,
    check_settings,
    read_settings,
)

if TYPE_CHECKING:
    from headwater.broker.node import Node
    from headwater.config import NodeConfig
    from headwater.io import Host
    from headwater.observability import Log

_EXAMPLES = """\
examples:
  headwater start                                 on 127.0.0.1:9092, data in ./headwater-data
  headwater start --data /srv/headwater --listen :9092
  headwater start --config server.properties --set log.retention.hours=24
  headwater start --memory --listen 127.0.0.1:0   for tests: no files, any free port

A directory is formatted on the first start. One line on stdout says when the node can serve:
  ready: 127.0.0.1:9092 node=1 cluster=3Db5QLSqSZieL3rJBUUegA data=/srv/headwater
SIGTERM or Ctrl-C stops it cleanly; a second Ctrl-C ends it at once.
"""

_STOPPED_AT_ONCE = 130

# A node makes few objects that live long and many that die at once; the collector's usual rhythm
# (every 700 objects) would find nothing, thousands of times.
_GC_THRESHOLDS = (50_000, 20, 50)


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    add_settings_options(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to listen (default: 127.0.0.1:9092); port 0 takes any that is free",
    )
    parser.add_argument("--memory", action="store_true", help="keep everything in memory")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    config = check_settings(read_settings(options, listen=options.listen, memory=options.memory))
    _raise_file_limit()
    gc.disable()  # a start makes many objects and next to no garbage
    import_asyncio()
    import asyncio

    from headwater.io import Host
    from headwater.io.attention import WatchfulLoop
    from headwater.observability import Log

    host = Host.in_memory() if options.memory else Host.system()
    log = Log(host.clock, _write_line)
    with asyncio.Runner(loop_factory=WatchfulLoop) as runner:
        return runner.run(_serve(config, host, log))


async def _serve(config: NodeConfig, host: Host, log: Log) -> int:
    import asyncio

    from headwater.broker.formatting import FormatRefused
    from headwater.broker.node import Node
    from headwater.config import ConfigError
    from headwater.errors import ApiError
    from headwater.storage.directory import DirectoryRefused

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _on_loop_failure(log, context))
    asked_to_stop = asyncio.Event()

    def on_signal() -> None:
        if asked_to_stop.is_set():
            os._exit(_STOPPED_AT_ONCE)  # what is on disk is as after a crash, and recovers
        asked_to_stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
    node = Node(config, host, log)
    asked = asyncio.ensure_future(asked_to_stop.wait())
    starting = asyncio.ensure_future(node.start())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # a long recovery, and nobody wants to wait for it
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return 0
    except ConfigError as error:
        raise CommandError(str(error), code=USAGE) from None
    except (OSError, ApiError, FormatRefused, DirectoryRefused) as error:
        raise _explained(error) from error
    _say_ready(config, node)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    assert node.failed is not None
    await asyncio.wait((asked, node.failed), return_when=asyncio.FIRST_COMPLETED)
    await node.stop()
    if node.failed.done():
        raise CommandError(
            node.failed.result(),
            then="mend what the lines above name, then start it again: it recovers by itself",
        )
    return 0


def _say_ready(config: NodeConfig, node: Node) -> None:
    """The one line on stdout, and on a terminal a few words for a person."""
    listeners = config.broker_listeners or config.controller_listeners
    address = node.addresses[listeners[0].name]
    if address.host == "::":
        address = address._replace(host="0.0.0.0")  # the same socket, in words that all can parse
    data = ",".join(config.log_dirs)
    if data == MEMORY_DATA:
        data = "memory"
    line = f"ready: {address} node={config.node_id} cluster={node.cluster_id} data={data}"
    with contextlib.suppress(OSError):  # whoever started us need not listen
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
    """What could not be had, and what to do about it."""
    if not isinstance(error, OSError):
        return CommandError(str(error))
    reason = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        return CommandError(
            f"{error.filename} is in use by another process",
            then="stop that process, or choose another port with --listen HOST:PORT "
            "(port 0 takes any that is free)",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return CommandError(
            f"{error.filename} is no address of this machine",
            then="choose one with --listen HOST:PORT; no host means every interface",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return CommandError(
            f"{error.filename}: {reason}",
            then="choose a directory with --data DIR or a port above 1023 with --listen HOST:PORT",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CommandError(
            f"the disk is too full to start: {reason}",
            then="a start needs some kilobytes for its own files; free them and start it again",
        )
    what = f"{error.filename}: {reason}" if error.filename else reason
    return CommandError(what)


def _raise_file_limit() -> None:
    """Each segment and each connection is a descriptor; the soft limit is for older programs."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _write_line(line: str) -> None:
    with contextlib.suppress(OSError):  # a log that cannot be written must not stop the node
        sys.stderr.write(line)
        sys.stderr.flush()


def _on_loop_failure(log: Log, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.failure(context["message"], error)
    else:
        log.error(context["message"])
