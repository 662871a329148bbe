"""Finds the coordinators of groups and transactional ids, and remembers them until one moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NamedTuple

from headwater.client.backoff import Backoff, Retries
from headwater.client.connection import Connection
from headwater.client.connection_pool import COORDINATION, ConnectionPool
from headwater.client.errors import (
    ClientError,
    CoordinatorUnavailable,
    RetriableError,
    error_for,
)
from headwater.client.metadata import Broker, ClusterMetadata
from headwater.io import Address, Host
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest

# From this version on FindCoordinator takes many keys, and has no place for one.
_MANY_KEYS_SINCE = 4
_KNOWN_MAX = 10_000


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Coordinator(NamedTuple):
    """The coordinator of a group or a transactional id."""

    key: str
    kind: CoordinatorKind = CoordinatorKind.GROUP

    def __str__(self) -> str:
        return f"the coordinator of {self.kind.name.lower()} {self.key}"


class Coordinators:
    def __init__(
        self,
        host: Host,
        backoff: Backoff,
        metadata: ClusterMetadata,
        pool: ConnectionPool,
        any_connection: Callable[[], Awaitable[Connection]],
    ) -> None:
        self._host = host
        self._backoff = backoff
        self._metadata = metadata
        self._pool = pool
        self._any = any_connection
        self._known: dict[Coordinator, int] = {}

    def lost(self, which: Coordinator) -> None:
        self._known.pop(which, None)

    def clear(self) -> None:
        self._known.clear()

    async def connection(self, which: Coordinator, deadline: float) -> Connection:
        """Looks the coordinator up and connects to it; retries until the deadline."""
        retries = Retries(self._backoff, self._host, deadline)
        last: ClientError | None = None
        try:
            async with asyncio.timeout(max(0.0, deadline - self._host.clock.monotonic())):
                while True:
                    try:
                        return await self._try(which)
                    except RetriableError as error:
                        self.lost(which)
                        last = error
                    if not await retries.pause():
                        raise TimeoutError
        except TimeoutError:
            why = str(last) if last is not None else f"{which}: not found within the timeout"
            code = None if last is None else last.code
            raise CoordinatorUnavailable(why, code=code) from None

    async def _try(self, which: Coordinator) -> Connection:
        node_id = self._known.get(which)
        if node_id is None or self._pool.address(node_id) is None:
            node_id = await self._find(which)
        return await self._pool.connection(node_id, COORDINATION)

    async def _find(self, which: Coordinator) -> int:
        connection = await self._any()
        version = connection.version(ApiKey.FIND_COORDINATOR) or 0
        if version >= _MANY_KEYS_SINCE:
            request = FindCoordinatorRequest(key_type=which.kind, coordinator_keys=[which.key])
        else:
            request = FindCoordinatorRequest(key=which.key, key_type=which.kind)
        answer = await connection.ask(request)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise error_for(found.error_code, str(which), found.error_message)
        node_id: int = found.node_id
        self._metadata.learn_broker(Broker(node_id, Address(found.host, found.port)))
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[which] = node_id
        return node_id
