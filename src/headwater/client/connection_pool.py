"""The connections of a client: one for each broker and use, opened when needed.

A group's coordinator has its own connection even if the same broker leads partitions: a broker
serves a connection in order, and a waiting JoinGroup would hold the fetches behind it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from headwater.client.backoff import Backoff
from headwater.client.config import ClientConfig
from headwater.client.connection import Connection, connect
from headwater.client.errors import BrokersUnavailable, ClientClosed, ClientError
from headwater.client.metadata import ClusterMetadata
from headwater.io import Address, Host
from headwater.io.tasks import background_task
from headwater.observability.measures import Traffic

if TYPE_CHECKING:
    from headwater.net.peer import PeerSecurity

DATA = 0
COORDINATION = 1
FETCHING = 2  # a fetch waits at the broker for records, and holds what is behind it
FOLLOWING = 4  # a trace waits at the broker for requests
JOINING = 3  # JoinGroup waits for the whole group; heartbeats and commits must not

# When a connection is retired, as a share of the time for which its login is valid.
_RETIRE_AT = (0.85, 0.95)
_RETIRING_SECONDS = 0.005

Key = tuple[int, int]  # node id (negative: a bootstrap address), use


@dataclass(slots=True)
class _Failures:
    """The failures of a node in a row, and when it may be tried again."""

    count: int = 0
    until: float = 0.0
    last: ClientError | None = None


class ConnectionPool:
    def __init__(self, config: ClientConfig, host: Host, metadata: ClusterMetadata) -> None:
        self.is_closed = False
        self.traffic = Traffic()
        self._config = config
        self._host = host
        self._metadata = metadata
        self._open: dict[Key, Connection] = {}
        self._connecting: dict[Key, asyncio.Task[Connection]] = {}
        self._failures: dict[int, _Failures] = {}
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._setup = Backoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        )
        self._sweep: asyncio.TimerHandle | None = None
        self._security: PeerSecurity | None = None
        if config.security_protocol != "PLAINTEXT":
            from headwater.client.security import (
                security_of,  # loaded only where it is used; it is large
            )

            self._security = security_of(config)

    # Open connections

    def ready(self, node_id: int, use: int = DATA) -> Connection | None:
        """Returns an open connection that may be used now."""
        connection = self._open.get((node_id, use))
        if connection is None or not connection.is_open:
            return None
        if connection.throttled_until and not self._is_free(connection):
            return None
        return connection

    def _is_free(self, connection: Connection) -> bool:
        if connection.throttled_until > self._host.clock.monotonic():
            return False
        connection.throttled_until = 0.0
        return True

    def least_loaded(self) -> Connection | None:
        """Returns the open connection with the fewest requests in flight. Connections on which
        requests wait at the broker are left out: a request behind them would wait, too."""
        free = [
            each
            for (_, use), each in self._open.items()
            if use == DATA and each.is_open and self._is_free(each)
        ]
        return min(free, key=lambda each: each.in_flight, default=None)

    def measured(self, now: float) -> dict[str, float]:
        """Returns metrics of connections and traffic."""
        return {
            "connection-count": len(self._open),
            "requests-in-flight": sum(each.in_flight for each in self._open.values()),
            **self.traffic.shown(now),
        }

    def retry_at(self, node_id: int) -> float:
        """Returns when a node that could not be reached may be tried again."""
        failures = self._failures.get(node_id)
        return 0.0 if failures is None else failures.until

    def reason(self, node_id: int) -> ClientError | None:
        """Returns why a node could not be reached the last time."""
        failures = self._failures.get(node_id)
        return None if failures is None else failures.last

    def address(self, node_id: int) -> Address | None:
        if node_id < 0:
            return self._config.contacts[-1 - node_id]
        broker = self._metadata.brokers.get(node_id)
        return None if broker is None else broker.address

    # Opening

    async def connection(self, node_id: int, use: int = DATA) -> Connection:
        """Opens or reuses a connection; waits for the reconnect backoff after a failure, and raises
        the error of one attempt."""
        key = (node_id, use)
        while True:
            if self.is_closed:
                raise ClientClosed("the client was closed")
            address = self.address(node_id)
            if address is None:
                raise BrokersUnavailable(f"node {node_id} is not among the live brokers")
            connection = self._open.get(key)
            if connection is not None and connection.is_open and connection.address == address:
                wait = connection.throttled_until - self._host.clock.monotonic()
                if wait <= 0:
                    return connection
                await asyncio.sleep(min(wait, _RETIRING_SECONDS) if wait == inf else wait)
                continue
            task = self._connecting.get(key)
            if task is None:
                task = background_task(self._connect(key, address))
                self._connecting[key] = task
                task.add_done_callback(_seen)
            # One attempt serves all waiters; it goes on if one of them is cancelled.
            await asyncio.wait((task,))
            if task.cancelled():
                raise ClientClosed("the client was closed")
            error = task.exception()
            if isinstance(error, ClientError):
                # Each waiter raises its own: a shared exception would collect all their tracebacks.
                raise type(error)(str(error), code=error.code)
            if error is not None:
                raise error

    async def _connect(self, key: Key, address: Address) -> Connection:
        node_id, _ = key
        failures = self._failures.setdefault(node_id, _Failures())
        try:
            wait = failures.until - self._host.clock.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            connection = await connect(
                self._host,
                address,
                node_id=node_id,
                client_id=self._config.client_id,
                timeout_ms=round(self._setup.seconds(failures.count + 1, self._host.random) * 1000),
                request_timeout_ms=self._config.request_timeout_ms,
                traffic=self.traffic,
                security=self._security,
                asks_controllers=self._config.asks_controllers,
            )
        except ClientError as error:
            self.traffic.failed += 1
            failures.count += 1
            # A copy: what is raised refers to this frame, and the frame to `failures`.
            failures.last = type(error)(str(error), code=error.code)
            failures.until = self._host.clock.monotonic() + self._backoff.seconds(
                failures.count, self._host.random
            )
            raise
        finally:
            del self._connecting[key]
        self._failures.pop(node_id, None)
        before = self._open.get(key)
        if before is not None:
            self._drop(key, before)  # the node has moved to another address
        self._open[key] = connection
        self.traffic.opened += 1
        connection.on_closed = self._on_closed
        if connection.trusted_until != inf:
            self._retire_in_time(key, connection)
        self._watch_idle()
        if node_id >= 0:
            self._leave_bootstrap()
        return connection

    def _on_closed(self, connection: Connection) -> None:
        for key, each in list(self._open.items()):
            if each is connection:
                del self._open[key]
                self.traffic.closed += 1
        # A broker that accepts connections and drops them must not be asked in a tight loop.
        failures = self._failures.setdefault(connection.node_id, _Failures())
        if not failures.until:
            failures.until = self._host.clock.monotonic() + self._backoff.seconds(
                1, self._host.random
            )

    def _retire_in_time(self, key: Key, connection: Connection) -> None:
        """Replaces a connection before its login expires: the broker would close it then (KIP-368),
        and a new one costs less than logging in again between requests."""
        lifetime = connection.trusted_until - self._host.clock.monotonic()
        early = self._host.random.uniform(*_RETIRE_AT)
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, lifetime * early), self._retire, key, connection)

    def _retire(self, key: Key, connection: Connection) -> None:
        """Sends no more on a connection, and closes it when all responses have come."""
        if not connection.is_open or self.is_closed:
            return
        connection.throttled_until = inf
        if connection.in_flight:
            loop = asyncio.get_running_loop()
            loop.call_later(_RETIRING_SECONDS, self._retire, key, connection)
        else:
            self._drop(key, connection)

    # Idle connections

    def _watch_idle(self) -> None:
        idle_ms = self._config.connections_max_idle_ms
        if self._sweep is None and idle_ms >= 0 and self._open and not self.is_closed:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(max(idle_ms / 4000, 0.05), self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        since = self._host.clock.monotonic() - self._config.connections_max_idle_ms / 1000
        for key, connection in list(self._open.items()):
            if not connection.in_flight and connection.active_at < since:
                self._drop(key, connection)
        self._watch_idle()

    # Closing

    def _drop(self, key: Key, connection: Connection) -> None:
        """Closes a connection that is no longer wanted. The node has not failed."""
        if self._open.pop(key, None) is not None:
            self.traffic.closed += 1
        connection.on_closed = None
        connection.close()

    def _leave_bootstrap(self) -> None:
        """Closes connections to bootstrap addresses: brokers are known by their ids now."""
        for key, connection in list(self._open.items()):
            if key[0] < 0 and not connection.in_flight:
                self._drop(key, connection)

    def on_brokers(self) -> None:
        """Follows a change of brokers, except on connections with requests in flight."""
        for key, connection in list(self._open.items()):
            node_id, use = key
            if node_id >= 0:
                if connection.address != self.address(node_id) and not connection.in_flight:
                    self._drop(key, connection)
                continue
            # The bootstrap address is a broker's own: no need to connect to it again.
            for broker in self._metadata.brokers.values():
                if broker.address == connection.address and (broker.node_id, use) not in self._open:
                    del self._open[key]
                    connection.node_id = broker.node_id
                    self._open[broker.node_id, use] = connection
                    break

    def drop_all(self) -> None:
        for key, connection in list(self._open.items()):
            self._drop(key, connection)
        self._failures.clear()

    async def close(self) -> None:
        self.is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        for key, connection in list(self._open.items()):
            self._drop(key, connection)
        if tasks:
            await asyncio.wait(tasks)


def _seen(task: asyncio.Task[Connection]) -> None:
    """Retrieves the exception: waiters may have been cancelled, and the failure is noted."""
    if not task.cancelled():
        task.exception()
