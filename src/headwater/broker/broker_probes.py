"""Probes of brokers that may be gone, so that their partitions get other leaders at once.

A broker whose connection to the active controller ends is probed, and so is every broker when a
controller becomes active: the death of a node that was both would otherwise go unnoticed for a
whole session. So is a broker that registers while an earlier run of it has a session: it listens
only when it is registered. Only a refused connection counts: the host is up and nothing listens
there, so the process has ended. A broker that is paused, slow or cut off keeps its full session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headwater.io import Host
from headwater.io.network import NO_RECEIVER
from headwater.metadata import BrokerRegistration

_TIMEOUT_SECONDS = 1.0
# A process that ends closes its connections before its listeners.
_PAUSE_SECONDS = 0.005
_ATTEMPTS = 3


class BrokerProbes:
    def __init__(
        self, host: Host, node_id: int, fence: Callable[[BrokerRegistration], Awaitable[None]]
    ) -> None:
        """`fence` is called with a broker whose process has ended."""
        self._host = host
        self._node_id = node_id
        self._fence = fence
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def probe(self, broker: BrokerRegistration) -> None:
        """Finds out in the background whether a broker is still there, and fences it if not."""
        if broker.fenced or broker.id == self._node_id or broker.id in self._tasks:
            return
        task = asyncio.ensure_future(self._probe(broker))
        self._tasks[broker.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(broker.id, None))

    async def _probe(self, broker: BrokerRegistration) -> None:
        for _ in range(_ATTEMPTS):
            refused = [await self._is_refused(at.host, at.port) for at in broker.endpoints]
            if refused and all(refused):
                await self._fence(broker)
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _is_refused(self, host: str, port: int) -> bool:
        # Nothing is said there, so it does not matter what the listener expects.
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                stream = await self._host.network.connect(host, port, lambda stream: NO_RECEIVER)
        except ConnectionRefusedError:
            return True
        except OSError:  # TimeoutError is one
            return False
        stream.abort()
        return False

    def stop(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
