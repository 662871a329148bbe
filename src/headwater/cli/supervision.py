"""A node under the supervision of another process: `headwater start --supervised`.

Its standard input is a pipe from the supervisor. The line `leave` asks the node to move its
leaderships to others before all nodes stop; it answers `left`. When the pipe ends, the supervisor
is gone and the node stops. Tests send `cut_off` and `reconnect` to a node that was started with
`--faults`, which repeats the word when it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.node import Node
    from headwater.io import Network

LEFT = "left"


class Supervision:
    """The requests of the supervisor."""

    def __init__(self, asked_to_stop: asyncio.Event, network: Network) -> None:
        self.asked_to_leave = asyncio.Event()
        self._asked_to_stop = asked_to_stop
        self._network = network

    async def follow(self) -> None:
        """Follows standard input from now on."""
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: _Lines(self._on_line, self._on_end), sys.stdin.buffer)

    def _on_line(self, line: bytes) -> None:
        from headwater.io.cut import CuttableNetwork

        if line == b"leave":
            self.asked_to_leave.set()
        elif isinstance(self._network, CuttableNetwork):
            if line == b"cut_off":
                self._network.cut_off()
            elif line == b"reconnect":
                self._network.reconnect()
            _answer(line.decode())

    def _on_end(self) -> None:
        self._asked_to_stop.set()

    async def leave_when_asked(self, node: Node) -> None:
        await self.asked_to_leave.wait()
        await node.leave()
        _answer(LEFT)


def _answer(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be reading
        print(text, flush=True)


class _Lines(asyncio.Protocol):
    def __init__(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line)

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()
