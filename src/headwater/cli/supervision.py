"""What a node does for the process that supervises it: `headwater start --supervised`.

Its standard input is a pipe from the supervisor. When the pipe ends, the supervisor is gone and
the node stops. Tests send lines through it: `cut_off` and `reconnect`, for a node that was started
with `--faults`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.io import Network


async def follow_supervisor(asked_to_stop: asyncio.Event, network: Network) -> None:
    """Follows standard input from now on."""
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: _Supervisor(asked_to_stop, network), sys.stdin.buffer)


class _Supervisor(asyncio.Protocol):
    def __init__(self, asked_to_stop: asyncio.Event, network: Network) -> None:
        self._asked_to_stop = asked_to_stop
        self._network = network
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        from headwater.io.cut import CuttableNetwork

        *lines, self._rest = (self._rest + data).split(b"\n")
        if not isinstance(self._network, CuttableNetwork):
            return
        for line in lines:
            if line == b"cut_off":
                self._network.cut_off()
            elif line == b"reconnect":
                self._network.reconnect()

    def connection_lost(self, error: Exception | None) -> None:
        self._asked_to_stop.set()
