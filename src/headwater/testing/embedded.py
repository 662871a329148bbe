"""The real broker inside a test's own process: on loopback, on any free port, gone at the end.

    with EmbeddedBroker() as broker:
        client = Client(bootstrap=broker.bootstrap)

It runs in a thread with an event loop of its own, so the test may use whatever client it likes,
blocking or not. Nothing of the node is replaced: only its files are kept in memory unless a
directory is given.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from headwater.broker.node import Node
from headwater.config import node_config
from headwater.io import Host
from headwater.io.workers import ThreadWorkers
from headwater.observability import Log

if TYPE_CHECKING:
    from types import TracebackType

_PATIENCE_SECONDS = 30.0
_LOG_LINES_MAX = 1000
_MEMORY_DATA = "/memory"


class EmbeddedBroker:
    """A node alone, as `headwater start` runs it, over any number of starts."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
    ) -> None:
        """`settings` have Kafka's names; `data` is a directory, or None to stay in memory."""
        self._settings = {"log.dirs": _MEMORY_DATA if data is None else os.fspath(data)}
        self._settings |= settings or {}
        self._host = Host.in_memory() if data is None else Host.system()
        self._lines: deque[str] = deque(maxlen=_LOG_LINES_MAX)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._addresses: dict[str, str] = {}
        self._bootstrap: str | None = None

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for any client; the same after a restart."""
        assert self._bootstrap is not None, "the broker was never started"
        return self._bootstrap

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def addresses(self) -> dict[str, str]:
        """HOST:PORT of each listener, by its name."""
        return dict(self._addresses)

    @property
    def log_lines(self) -> list[str]:
        """What it said, the newest last."""
        return list(self._lines)

    def start(self) -> Self:
        assert self._thread is None, "already running"
        started: Future[None] = Future()
        # A node closes the threads it worked with when it stops; its files stay.
        host = replace(self._host, workers=ThreadWorkers())
        self._thread = threading.Thread(
            target=self._run, args=(host, started), name="headwater-broker", daemon=True
        )
        self._thread.start()
        try:
            started.result(_PATIENCE_SECONDS)
        except BaseException:
            self._thread = None
            raise
        return self

    def stop(self) -> None:
        """As SIGTERM would: answers what is owed, then ends. May be called twice."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None:
            return
        assert loop is not None
        assert stopping is not None
        loop.call_soon_threadsafe(stopping.set)
        thread.join(_PATIENCE_SECONDS)
        assert not thread.is_alive(), "the broker did not stop"
        self._thread = None

    def restart(self) -> None:
        """Stops and starts again on the same port with the same data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start() if self._thread is None else self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self, host: Host, started: Future[None]) -> None:
        try:
            asyncio.run(self._serve(host, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, host: Host, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        node = Node(node_config(self._settings_now()), host, Log(host.clock, self._lines.append))
        await node.start()
        self._remember(node)
        started.set_result(None)
        await self._stopping.wait()
        await node.stop()

    def _settings_now(self) -> dict[str, str]:
        """Any free port at first, then the port that clients know already."""
        settings = dict(self._settings)
        if self._addresses:
            settings["listeners"] = ",".join(
                f"{name}://{address}" for name, address in self._addresses.items()
            )
        else:
            settings.setdefault("listeners", "PLAINTEXT://127.0.0.1:0")
        return settings

    def _remember(self, node: Node) -> None:
        self._addresses = {name: str(address) for name, address in node.addresses.items()}
        self._bootstrap = self._addresses[node.config.broker_listeners[0].name]
