"""A node that runs in a thread with its own event loop, from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from headwater.broker.node import Node
from headwater.config import node_config

if TYPE_CHECKING:
    from headwater.io import Host
    from headwater.observability import Log

_PATIENCE_SECONDS = 30.0

T = TypeVar("T")


class BackgroundNode:
    """A node that nobody has to await. All calls come from other threads."""

    def __init__(self, settings: dict[str, str], host: Host, log: Log) -> None:
        self._settings = settings
        self._host = host
        self._log = log
        # Not the policy's loop: under uvloop this would not be the node that is shipped.
        self._loop = asyncio.SelectorEventLoop()
        self._asked_to_stop = asyncio.Event()
        self._started: Future[Node] = Future()
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._thread = threading.Thread(target=self._run, name="headwater-broker", daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> dict[str, str]:
        """Returns HOST:PORT of each listener, by name, as soon as they accept connections."""
        self._thread.start()
        node = self._started.result(_PATIENCE_SECONDS)
        return {at.name: str(node.addresses[at.name]) for at in node.config.broker_listeners}

    @property
    def metrics_address(self) -> str | None:
        """HOST:PORT where metrics are served, if they are."""
        at = self._started.result().metrics_address
        return None if at is None else str(at)

    def stop(self) -> None:
        self._may_go_on.set()
        if not self._thread.is_alive():  # it failed, or this is a forked child
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has just ended
            self._loop.call_soon_threadsafe(self._asked_to_stop.set)
        self._thread.join(_PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the broker did not stop"

    def pause(self) -> None:
        """Blocks the loop itself, timers included. Returns when it is blocked."""
        assert self._may_go_on.is_set(), "paused already"
        self._may_go_on.clear()
        held = threading.Event()

        def hold() -> None:
            held.set()
            self._may_go_on.wait()

        self._loop.call_soon_threadsafe(hold)
        assert held.wait(_PATIENCE_SECONDS), "the broker's loop is stuck"

    def resume(self) -> None:
        self._may_go_on.set()

    def drop_connections(self) -> int:
        return self._call(lambda: self._started.result().drop_connections())

    def _call(self, work: Callable[[], T]) -> T:
        """Runs `work` in the node's thread and returns its result."""
        done: Future[T] = Future()

        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(do)
        return done.result(_PATIENCE_SECONDS)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        node = Node(node_config(self._settings), self._host, self._log)
        await node.start()
        self._started.set_result(node)
        assert node.failed is not None
        asked = asyncio.ensure_future(self._asked_to_stop.wait())
        await asyncio.wait((asked, node.failed), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if node.failed.done():
            self._log.error(f"the node ends: {node.failed.result()}")
        await node.stop()
