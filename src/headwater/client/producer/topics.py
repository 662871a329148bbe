"""The topics that the intake knows. While one is looked up its records wait, not the callers.

A topic that is no longer sent to is dropped (KIP-526): followed topics are requested again and
again, and a broker that creates topics on demand would bring back one that was deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headwater._core import Intake
from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.connection import Connection
from headwater.client.errors import ClientError, RequestTimedOut, UnknownTopic
from headwater.client.metadata import Change, Topic
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.buffer_memory import BufferWaiters
from headwater.client.producer.delivery import DeliveryReports
from headwater.io.tasks import background_task
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_BUSY = -1  # differs from any count


class Topics:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        intake: Intake,
        accumulator: Accumulator,
        reports: DeliveryReports,
        waiters: BufferWaiters,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._intake = intake
        self._accumulator = accumulator
        self._reports = reports
        self._waiters = waiters
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._posted: Connection | None = None
        self._end = cluster.on_change(self._changed)
        self._idle = IdleTopics()
        self._loop = asyncio.get_running_loop()
        self._look_later()

    def _look_later(self) -> None:
        seconds = self._config.metadata_max_idle_ms / 1000
        self._next_look = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self.let_go()
        self._look_later()

    def let_go(self) -> None:
        """Forgets the topics without a record since the last call; called by a timer."""
        for name in self._idle.look(self._accumulator.activity()):
            if name in self._asking:
                self._idle.follow(name)
                continue
            self._cluster.unfollow(name)
            self._cluster.metadata.forget(name)
            self._intake.forget(name)

    async def get(self, name: str) -> Topic:
        """Returns the topic, asking for it if need be, within max_block_ms."""
        deadline = self._cluster.deadline(self._config.max_block_ms)
        try:
            topics = await self._cluster.topics([name], deadline=deadline, create=True)
        except UnknownTopic as error:
            limit = self._config.max_block_ms
            raise UnknownTopic(f"{error} after max_block_ms={limit}", code=error.code) from None
        except RequestTimedOut as error:
            limit = self._config.max_block_ms
            raise RequestTimedOut(f"{error} (max_block_ms={limit})") from None
        self._cluster.follow(name, create=True)
        self._idle.follow(name)
        return topics[name]

    async def learn(self, name: str) -> None:
        """Tells the intake about a topic, or raises."""
        self._know(await self.get(name))

    # Records of unknown topics

    def unknown(self, name: str) -> None:
        """Looks a topic up; its first record waits for it."""
        if name not in self._asking:
            self._asking[name] = background_task(self._learn(name))

    async def _learn(self, name: str) -> None:
        try:
            await self.learn(name)
        except ClientError as error:
            self._abandon(name, error)
        finally:
            del self._asking[name]

    def _know(self, topic: Topic) -> None:
        for waiter, error in self._intake.know(topic.name, len(topic.partitions)):
            self._reports.rejected(waiter, error)

    def _abandon(self, name: str, error: ClientError) -> None:
        for waiter in self._intake.abandon(name):
            self._reports.rejected(waiter, type(error)(str(error), code=error.code))
        self._waiters.freed()

    def abandon_held(self, error: ClientError) -> None:
        """Fails the records that wait for their topics: their transaction is aborted."""
        for name, _ in self._intake.held:
            self._abandon(name, error)

    def partitions(self, name: str) -> int:
        return self._intake.partitions(name)

    def _changed(self, change: Change) -> None:
        for name in change.gone:
            # New records wait for it; earlier ones may still be sent if it comes back.
            self._intake.forget(name)
        for name in change.topics:
            topic = self._cluster.metadata.topics.get(name)
            if topic is not None and self._intake.partitions(name) not in (
                0,
                len(topic.partitions),
            ):
                self._know(topic)

    async def settled(self) -> None:
        """Waits until no record waits for its topic."""
        while self._asking:
            await asyncio.wait(self._asking.values())

    # For callers that cannot await

    def ask_now(self) -> Connection | None:
        """Asks for the topics that records wait for, by callback, on a connection that can be
        pumped; returns None if there is none."""
        if self._posted is not None and self._posted.is_open:
            return self._posted
        names = [name for name, _ in self._intake.held]
        nodes = self._cluster.metadata.brokers
        connection = next(filter(None, map(self._cluster.ready, nodes)), None)
        if not names or connection is None:
            return None
        version = connection.version(ApiKey.METADATA)
        assert version is not None
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=True,
        )
        self._posted = connection
        timeout_ms = self._config.request_timeout_ms
        connection.post(request, version, self._answered, timeout_ms=timeout_ms)
        return connection

    def _answered(self, answer: MetadataResponse | None, error: ClientError | None) -> None:
        self._posted = None
        if answer is None or answer.error_code or not answer.brokers:
            return
        self._cluster.metadata.update(answer)
        for each in answer.topics:
            name = each.name
            if name is None:
                continue
            topic = self._cluster.metadata.topics.get(name)
            if topic is not None:
                self._know(topic)

    async def stop(self, error: ClientError) -> None:
        self._end()
        self._next_look.cancel()
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.abandon_held(error)


class IdleTopics:
    """A machine that finds topics without records. It is called every metadata.max.idle.ms and
    compares batch counts, so a topic is dropped after once to twice that time, and a record costs
    nothing."""

    def __init__(self) -> None:
        self._batches: dict[str, int] = {}  # of each topic at the last look

    def follow(self, topic: str) -> None:
        self._batches[topic] = _BUSY

    def look(self, activity: Mapping[str, int | None]) -> list[str]:
        """Returns, and forgets, the topics without a batch since the last call. `activity` is the
        batch count of each topic, or None while one is open or has no outcome."""
        idle = []
        for topic, before in self._batches.items():
            count = activity.get(topic, 0)
            if count == before:
                idle.append(topic)
            else:
                self._batches[topic] = _BUSY if count is None else count
        for topic in idle:
            del self._batches[topic]
        return idle
