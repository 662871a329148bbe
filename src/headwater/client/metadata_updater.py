"""Keeps a client's metadata fresh: by age, on request, and for new topics.

One task sends every metadata request, so that a thousand callers that miss the same topic cost one
request, and requests that bring nothing new come ever slower.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from headwater.client.backoff import Backoff
from headwater.client.config import ClientConfig
from headwater.client.connection import Connection
from headwater.client.errors import (
    BrokersUnavailable,
    ClientClosed,
    ClientError,
    RequestTimedOut,
    RetriableError,
    UnsupportedVersion,
    error_class,
    error_for,
)
from headwater.client.metadata import Change, ClusterMetadata, Topic
from headwater.errors import ErrorCode
from headwater.io import Host
from headwater.io.tasks import background_task
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    EndpointType,
)
from headwater.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_log = logging.getLogger("headwater.client")

Listener = Callable[[Change], None]

_ENDPOINT_TYPE_SINCE = 1


class MetadataUpdater:
    def __init__(
        self,
        config: ClientConfig,
        host: Host,
        metadata: ClusterMetadata,
        any_connection: Callable[[], Awaitable[Connection]],
        rebootstrap: Callable[[], None],
    ) -> None:
        self.updated_at: float | None = None  # when the last response came
        self.failure: ClientError | None = None  # of the last request
        self._config = config
        self._host = host
        self._metadata = metadata
        self._any = any_connection
        self._rebootstrap = rebootstrap
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._followed: dict[str, bool] = {}  # with whether the broker may create them
        self._all = False
        self._new: dict[str, bool] = {}  # requested, and without a response yet
        self._wanted = False
        self._urgent = False  # a caller waits for a topic that was never requested
        self._failing_since: float | None = None
        self._lost_at: float | None = None  # when the log said that no broker can be reached
        self._barren = 0  # requests in a row that brought nothing new
        self._tried_at = float("-inf")
        self._wake = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._listeners: list[Listener] = []
        self._task: asyncio.Task[None] | None = None

    # Topics to keep fresh

    def follow(self, topic: str, *, create: bool = False) -> None:
        self._followed[topic] = create

    def unfollow(self, topic: str) -> None:
        self._followed.pop(topic, None)

    def follow_all(self, wanted: bool) -> None:
        self._all = wanted

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Calls the listener after each update that changed something; the returned function stops
        it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def need_update(self, topic: str | None = None) -> None:
        if topic is not None and topic not in self._followed:
            self._new.setdefault(topic, False)
        self._wanted = True
        now = self._host.clock.monotonic()
        if now - self._tried_at > self._config.retry_backoff_max_ms / 1000:
            self._barren = 0
        self._wake.set()

    # Waiting

    async def updated(self, deadline: float) -> None:
        """Waits until the next request has succeeded or failed."""
        if self._task is None or self._task.done():
            raise ClientClosed("the client was closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(max(0.0, deadline - self._host.clock.monotonic())):
                await waiter
        except TimeoutError:
            why = f": {self.failure}" if self.failure is not None else ""
            raise RequestTimedOut(f"no fresh metadata within the timeout{why}") from None
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    async def topics(
        self, names: Iterable[str], *, deadline: float, create: bool
    ) -> dict[str, Topic]:
        wanted = list(dict.fromkeys(names))
        known = self._metadata.topics
        missing = [name for name in wanted if name not in known]
        self._urgent |= bool(missing)
        while missing:
            for name in missing:
                self._new[name] = create
            self._wake.set()
            try:
                await self.updated(deadline)
            except RequestTimedOut:
                if self.failure is not None:
                    raise
                raise self._too_late(missing) from None
            for name in missing:
                code = self._metadata.errors.get(name, 0)
                if code and not issubclass(error_class(code), RetriableError):
                    raise error_for(code, f"topic {name}")
            missing = [name for name in missing if name not in known]
        return {name: known[name] for name in wanted}

    def _too_late(self, missing: list[str]) -> ClientError:
        """Returns a broker's error for a topic; without one, nobody knows whether it exists."""
        for name in missing:
            code = self._metadata.errors.get(name)
            if code is not None:
                return error_for(code, f"topic {name}")
        return RequestTimedOut(f"topic {missing[0]}: no broker answered within the timeout")

    # Requests

    def start(self) -> None:
        self._task = background_task(self._run(), name="headwater-metadata")
        self._task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.error("metadata is not kept fresh any more", exc_info=task.exception())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_exception(ClientClosed("the client was closed"))

    async def _run(self) -> None:
        while True:
            await self._until_due()
            self._tried_at = self._host.clock.monotonic()
            try:
                await self.refresh()
            except ClientError as error:
                self._failed(error)
            self._tell()

    def _failed(self, error: ClientError) -> None:
        now = self._host.clock.monotonic()
        # One line for an outage and one for its end; none for a single broken connection.
        is_outage = isinstance(error, BrokersUnavailable) and self._lost_at is None
        _log.log(
            logging.WARNING if is_outage else logging.DEBUG,
            "%s: %s; retrying",
            self._config.client_id,
            error,
        )
        if is_outage:
            self._lost_at = now
        self.failure = error
        self._barren += 1
        if self._failing_since is None:
            self._failing_since = now
        if self._config.metadata_recovery_strategy != "rebootstrap":
            return
        trigger_seconds = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        required = error.code == ErrorCode.REBOOTSTRAP_REQUIRED
        if required or now - self._failing_since >= trigger_seconds:
            # Brokers that answer and cannot help are worse than none (KIP-1102).
            self._failing_since = None
            self._rebootstrap()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def _until_due(self) -> None:
        while True:
            self._wake.clear()
            wait = self._due_at() - self._host.clock.monotonic()
            if wait <= 0:
                return
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _due_at(self) -> float:
        soon = self._tried_at
        if self._urgent:
            return soon
        if self._barren:
            soon += self._backoff.seconds(self._barren, self._host.random)
        if self._wanted or self._new or self.failure is not None:
            return soon
        updated_at = self.updated_at if self.updated_at is not None else self._tried_at
        return max(soon, updated_at + self._config.metadata_max_age_ms / 1000)

    async def refresh(self) -> None:
        """Asks once, for all followed and all new topics."""
        connection = await self._any()
        new, self._new, self._wanted, self._urgent = self._new, {}, False, False
        try:
            changed = await self._ask(connection, new)
        except ClientError:
            self._new = new | self._new
            self._wanted = True
            raise
        self.failure = self._failing_since = None
        self.updated_at = self._host.clock.monotonic()
        if self._lost_at is not None:
            _log.warning(
                "%s: the cluster is reachable again after %.1f seconds",
                self._config.client_id,
                self.updated_at - self._lost_at,
            )
            self._lost_at = None
        still = any(name not in self._metadata.topics for name in new)
        self._barren = 0 if changed and not still else self._barren + 1
        if any(map(self._may_appear, self._followed)):
            self._wanted = True

    def _may_appear(self, name: str) -> bool:
        """Returns whether a topic is missing and may appear later."""
        if name in self._metadata.topics:
            return False
        code = self._metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return issubclass(error_class(code), RetriableError)

    async def _ask(self, connection: Connection, new: dict[str, bool]) -> bool:
        if self._config.asks_controllers:
            return await self._ask_for_controllers(connection)
        changed = False
        wanted = self._followed | new
        if self._all:
            changed |= await self._ask_for(connection, None, create=False)
        creating = [name for name, create in wanted.items() if create]
        plain = [name for name, create in wanted.items() if not create]
        if creating:
            changed |= await self._ask_for(connection, creating, create=True)
        if (plain or not creating) and not (self._all and not plain):
            changed |= await self._ask_for(connection, plain, create=False)
        return changed

    async def _ask_for(
        self, connection: Connection, names: list[str] | None, *, create: bool
    ) -> bool:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create,
        )
        answer: MetadataResponse = await connection.ask(
            request, timeout_ms=self._config.request_timeout_ms
        )
        if answer.error_code:
            raise error_for(answer.error_code, f"metadata of {connection.address}")
        if not answer.brokers:
            raise BrokersUnavailable(f"{connection.address} does not know any broker yet")
        change = self._metadata.update(answer, is_all=names is None)
        if self._metadata.leaderless:
            self._wanted = True
        if change:
            for listener in tuple(self._listeners):
                listener(change)
        return bool(change)

    async def _ask_for_controllers(self, connection: Connection) -> bool:
        """Asks a controller for the others (KIP-919); there is nothing about topics."""
        if (connection.version(ApiKey.DESCRIBE_CLUSTER) or 0) < _ENDPOINT_TYPE_SINCE:
            raise UnsupportedVersion(
                f"{connection.address} does not describe controllers: bootstrap_controllers needs "
                "Kafka 3.7 or newer"
            )
        answer: DescribeClusterResponse = await connection.ask(
            DescribeClusterRequest(
                include_cluster_authorized_operations=False, endpoint_type=EndpointType.CONTROLLER
            ),
            timeout_ms=self._config.request_timeout_ms,
        )
        if answer.error_code:
            about = f"controllers known to {connection.address}"
            raise error_for(answer.error_code, about, answer.error_message)
        if not answer.brokers:
            raise BrokersUnavailable(f"{connection.address} does not know any controller yet")
        change = self._metadata.update_controllers(answer)
        if change:
            self.notify(change)
        return bool(change)

    def notify(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)
