"""The cluster as a client sees it: connections, metadata, coordinators, and requests with retries.

All clients share it: the first contact, connections by node, the least loaded one, coordinators,
the controller, leader hints, and `ask`, which retries until a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from headwater.client.backoff import Backoff, Retries
from headwater.client.config import ClientConfig
from headwater.client.connection import Connection
from headwater.client.connection_pool import DATA, ConnectionPool
from headwater.client.coordinators import Coordinator, CoordinatorKind, Coordinators
from headwater.client.errors import (
    BrokersUnavailable,
    ClientClosed,
    ClientError,
    FatalError,
    Forked,
    RequestTimedOut,
    RetriableError,
    UnsupportedVersion,
    WrongLoop,
)
from headwater.client.metadata import Broker, Change, ClusterMetadata, Topic
from headwater.client.metadata_updater import MetadataUpdater
from headwater.errors import ErrorCode
from headwater.io import Host, process_id
from headwater.io.tasks import background_task
from headwater.model import TopicPartition
from headwater.observability.measures import Traffic
from headwater.protocol import Message
from headwater.protocol.apis import APIS

__all__ = ["RETRIED", "Cluster", "Coordinator", "CoordinatorKind", "Target", "Where"]

_log = logging.getLogger("headwater.client")

# How long one broker has to answer before the next one is tried beside it.
_STAGGER_SECONDS = 1.0

# Codes after which `ask` retries, possibly at another broker, until its deadline.
RETRIED = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
_COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class Where(Enum):
    """The destination of a request that is for no particular node."""

    ANY = "any broker"
    CONTROLLER = "the controller"


Target = Where | Coordinator | int


class Cluster:
    """A client's view of its cluster. Belongs to the event loop on which it was started."""

    def __init__(self, config: ClientConfig, host: Host) -> None:
        self.config = config
        self.host = host
        self.metadata = ClusterMetadata()
        self._pool = ConnectionPool(config, host, self.metadata)
        self._updater = MetadataUpdater(config, host, self.metadata, self.any, self._rebootstrap)
        self._updater.on_change(self._on_change)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._coordinators = Coordinators(host, self._backoff, self.metadata, self._pool, self.any)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = process_id()
        self._closed = False
        self._told_unclosed = False

    def now(self) -> float:
        return self.host.clock.monotonic()

    def deadline(self, timeout_ms: float) -> float:
        """Returns the end of a timeout, by the monotonic clock."""
        return self.host.clock.monotonic() + timeout_ms / 1000

    def retries(self, deadline: float) -> Retries:
        """Returns the attempts of one operation, with retry_backoff_ms between them."""
        return Retries(self._backoff, self.host, deadline)

    # Start and close

    async def start(self) -> None:
        """Finds a first broker and learns of the others, within start_timeout_ms."""
        if self._closed:
            raise ClientClosed("the client is closed; create a new one")
        if self._loop is not None:
            raise ClientError("the client was already started")
        self._loop = asyncio.get_running_loop()
        self.check()
        retries = self.retries(self.deadline(self.config.start_timeout_ms))
        try:
            async with asyncio.timeout(self.config.start_timeout_ms / 1000):
                while True:
                    try:
                        await self._updater.refresh()
                        break
                    except RetriableError:
                        if not await retries.pause():
                            raise
        except TimeoutError:
            await self.close()
            raise self._unreachable() from None
        except BaseException:
            await self.close()
            raise
        self._updater.start()

    async def close(self) -> None:
        """Closes all connections. Requests in flight fail with `Disconnected`."""
        if self._closed:
            return
        self._closed = True
        await self._updater.stop()
        await self._pool.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._loop is not None

    @property
    def is_open_here(self) -> bool:
        """Whether it is started and not closed, in the process that started it."""
        return self.is_started and not self._closed and process_id() == self._process

    def warn_unclosed(self, client: object, what: str, *, block: str, details: str = "") -> None:
        """Warns, once, that a client was dropped without being closed. `block` is the statement
        that would have closed it."""
        if not self.is_open_here or self._told_unclosed:
            return
        self._told_unclosed = True
        message = f"{what} was not closed{details}: use it in `{block}`, or call close() at the end"
        warnings.warn(message, ResourceWarning, source=client, stacklevel=3)
        if details:  # few programs show warnings of this category
            _log.warning(message)

    def check(self) -> None:
        """Raises unless the client may be used here and now; first in every public call."""
        if self._closed:
            raise ClientClosed("the client is closed; create a new one")
        if process_id() != self._process:  # checked here first, since each record comes this way
            self.check_process()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise WrongLoop(
                "no event loop is running here; headwater.blocking has the same client for "
                "plain threads"
            ) from None
        if self._loop is None:
            raise ClientClosed("the client is not started: use `async with`, or await start()")
        if running is not self._loop:
            raise WrongLoop(
                "the client was started on another event loop; make one client for each loop, or "
                "use headwater.blocking"
            )

    def check_process(self) -> None:
        """Raises in a forked child: it shares the connections with its parent, and what it sent
        there would be taken for the parent's."""
        if process_id() != self._process:
            raise Forked(
                f"the client was made in process {self._process} and this is its fork "
                f"{process_id()}; make a client in each process, after the fork"
            )

    # Connections

    def ready(self, node_id: int, use: int = DATA) -> Connection | None:
        """Returns an open connection to a node; None if there is none, or it is throttled."""
        return self._pool.ready(node_id, use)

    async def connection(self, node_id: int, use: int = DATA) -> Connection:
        """Opens or reuses a connection to a node. Raises a RetriableError after one attempt, which
        begins when the reconnect backoff of an earlier failure is over."""
        return await self._pool.connection(node_id, use)

    async def any(self) -> Connection:
        """Returns the least loaded connection; if none is open, the first that can be opened."""
        connection = self._pool.least_loaded()
        if connection is not None:
            return connection
        nodes = list(self.metadata.brokers)
        self.host.random.shuffle(nodes)
        nodes.sort(key=self._pool.retry_at)
        if not nodes or self.config.metadata_recovery_strategy == "rebootstrap":
            # The brokers may all have moved: go back to where we started (KIP-899).
            bootstrap = self._bootstrap_ids()
            self.host.random.shuffle(bootstrap)
            nodes += bootstrap
        return await self._first(nodes)

    async def _first(self, nodes: list[int]) -> Connection:
        """Tries nodes in order, each next one beside those that take long."""
        trying: dict[asyncio.Task[Connection], int] = {}
        failures: list[ClientError] = []
        left = iter(nodes)
        try:
            while True:
                node_id = next(left, None)
                if node_id is not None:
                    task = background_task(self._pool.connection(node_id))
                    trying[task] = node_id
                elif not trying:
                    break
                done, _ = await asyncio.wait(
                    trying,
                    timeout=_STAGGER_SECONDS if node_id is not None else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    del trying[task]
                    error = task.exception()
                    if error is None:
                        return task.result()
                    if not isinstance(error, ClientError):
                        raise error
                    failures.append(error)
        finally:
            for task in trying:
                task.cancel()
        if failures and all(isinstance(each, FatalError) for each in failures):
            raise failures[0]
        raise self._unreachable()

    def _bootstrap_ids(self) -> list[int]:
        """Returns the node ids that stand for bootstrap addresses, whose real ids are not known
        yet."""
        return [-1 - index for index in range(len(self.config.contacts))]

    def _unreachable(self) -> BrokersUnavailable:
        """Returns the error with every address and its reason."""
        reasons: dict[str, None] = {}
        for node_id in [*self.metadata.brokers, *self._bootstrap_ids()]:
            error = self._pool.reason(node_id)
            address = self._pool.address(node_id)
            if error is not None:
                reasons[str(error)] = None
            elif node_id < 0:
                reasons[f"{address}: no answer"] = None
        whom = "controller" if self.config.asks_controllers else "broker"
        return BrokersUnavailable(f"no {whom} can be reached: " + "; ".join(reasons))

    def _rebootstrap(self) -> None:
        """Forgets the brokers, so that the next request goes to the bootstrap addresses."""
        self.metadata.brokers.clear()
        self._coordinators.clear()
        self._pool.drop_all()

    def _on_change(self, change: Change) -> None:
        if change.brokers:
            self._pool.on_brokers()

    def measured(self) -> dict[str, float]:
        """Returns the metrics of every client: connections, requests, the age of the metadata in
        seconds."""
        now = self.now()
        updated_at = self._updater.updated_at
        age = -1.0 if updated_at is None else now - updated_at
        return {**self._pool.measured(now), "metadata-age": age}

    @property
    def traffic(self) -> Traffic:
        return self._pool.traffic

    # Metadata

    async def topics(
        self, names: Iterable[str], *, deadline: float, create: bool = False
    ) -> dict[str, Topic]:
        """Returns these topics, asking for them if need be. Raises UnknownTopic at the deadline,
        and at once for an invalid or forbidden name."""
        return await self._updater.topics(names, deadline=deadline, create=create)

    async def refresh(self) -> None:
        """Asks once for fresh metadata, now. Raises the error of this one request."""
        await self._updater.refresh()

    def need_update(self, topic: str | None = None) -> None:
        """Requests fresh metadata soon; many calls are one request."""
        self._updater.need_update(topic)

    async def updated(self, deadline: float) -> None:
        """Waits until the next metadata request has succeeded or failed."""
        await self._updater.updated(deadline)

    def follow(self, topic: str, *, create: bool = False) -> None:
        """Keeps a topic fresh, every metadata.max.age.ms and whenever something changes."""
        self._updater.follow(topic, create=create)

    def unfollow(self, topic: str) -> None:
        self._updater.unfollow(topic)

    def follow_all(self, wanted: bool = True) -> None:
        """Keeps all topics fresh, for subscriptions by pattern."""
        self._updater.follow_all(wanted)

    def on_change(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Calls the listener with each change; call the returned function to stop."""
        return self._updater.on_change(listener)

    def learn_leader(
        self,
        tp: TopicPartition,
        leader_id: int,
        leader_epoch: int,
        endpoint: Broker | None = None,
    ) -> bool:
        """Applies a leader hint (KIP-951); returns whether it was new."""
        if endpoint is None and leader_id not in self.metadata.brokers:
            return False
        if not self.metadata.learn_leader(tp, leader_id, leader_epoch):
            return False
        if endpoint is not None and self.metadata.learn_broker(endpoint):
            self._pool.on_brokers()
        self._updater.notify(Change(topics=(tp.topic,)))
        return True

    # Coordinators

    async def coordinator(
        self,
        key: str,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        *,
        deadline: float | None = None,
    ) -> Connection:
        """Returns a connection to the coordinator, looked up until the deadline (by default, for
        request.timeout.ms). It is used for nothing else, so a request that waits there blocks no
        others."""
        if deadline is None:
            deadline = self.deadline(self.config.request_timeout_ms)
        return await self._coordinators.connection(Coordinator(key, kind), deadline)

    def coordinator_lost(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """Forgets a coordinator that has moved or cannot be reached."""
        self._coordinators.lost(Coordinator(key, kind))

    # Requests

    async def ask(
        self,
        request: Message,
        *,
        to: Target = Where.ANY,
        code_of: Callable[[Any], int] | None = None,
        deadline: float,
        at_most: int | None = None,
        timeout_ms: int | None = None,
        retry: frozenset[ErrorCode] = RETRIED,
    ) -> Any:
        """Sends a request and returns the response. Retries until the deadline while the response
        has a code of `retry` (`code_of` finds it), while connections fail, and while the controller
        or coordinator moves.

        A response with another code, or still with one of those at the deadline, is returned: the
        caller knows what it means. Without any response the last error is raised."""
        self.check()
        retries = self.retries(deadline)
        answer: Any = None
        last: RetriableError | None = None
        while True:
            code = 0
            problem: RetriableError | None = None
            try:
                # The caller's deadline ends the wait, not the connection, which others use.
                async with asyncio.timeout(max(0.0, deadline - self.now())):
                    connection = await self._find(to, deadline)
                    self._check_served(connection, request)
                    answer = await connection.ask(request, at_most=at_most, timeout_ms=timeout_ms)
            except TimeoutError:
                if answer is not None:
                    return answer
                raise self._too_late(request, to, last) from None
            except RetriableError as error:
                problem = last = error
            else:
                code = code_of(answer) if code_of is not None else 0
                if code not in retry:
                    return answer
            if self._closed:
                raise ClientClosed("the client was closed")
            wait = retries.next_wait()
            if wait is None:
                if problem is None:
                    return answer
                raise problem
            self._react(to, code, problem)
            await asyncio.sleep(wait)

    async def _find(self, to: Target, deadline: float) -> Connection:
        match to:
            case Coordinator(key, kind):
                return await self.coordinator(key, kind, deadline=deadline)
            case Where.ANY if not self.config.asks_controllers:
                return await self.any()
            case Where():  # most requests to controllers are for the active one
                controller = self.metadata.controller_id
                if controller in self.metadata.brokers:
                    return await self.connection(controller)
                return await self.any()
            case int(node_id):
                return await self.connection(node_id)

    def _check_served(self, connection: Connection, request: Message) -> None:
        api = type(request).API
        assert api is not None
        if self.config.asks_controllers and connection.version(api) is None:
            raise UnsupportedVersion(
                f"controllers such as {connection.address} do not serve {APIS[api].name}: ask a "
                "broker, with bootstrap instead of bootstrap_controllers"
            )

    def _react(self, to: Target, code: int, problem: ClientError | None) -> None:
        """Makes sure that the next attempt does not repeat the same mistake."""
        if isinstance(to, Coordinator):
            if problem is not None or code in _COORDINATOR_MOVED:
                self.coordinator_lost(to.key, to.kind)
        else:
            self.need_update()

    def _too_late(
        self, request: Message, to: Target, last: RetriableError | None
    ) -> RequestTimedOut:
        match to:
            case Where():
                whom = to.value
            case Coordinator():
                whom = str(to)
            case int():
                whom = f"node {to}"
        what = type(request).__name__.removesuffix("Request")
        before = f"; before that: {last}" if last is not None else ""
        return RequestTimedOut(f"{what}: no answer from {whom} within the timeout{before}")
